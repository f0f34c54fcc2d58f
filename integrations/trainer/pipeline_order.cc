#include "integrations/trainer/pipeline_order.h"

#include <algorithm>

namespace ranvier::trainer {

std::vector<StageStep> one_forward_one_backward(std::size_t stage, std::size_t stages, std::size_t passes) {
  const std::size_t ahead = std::min(stages - 1 - stage, passes);
  std::vector<StageStep> order;
  for (std::size_t pass = 0; pass < passes + ahead; ++pass) {
    if (pass < passes) order.push_back({.is_forward = true, .pass = pass});
    if (pass >= ahead) order.push_back({.is_forward = false, .pass = pass - ahead});
  }
  return order;
}

}  // namespace ranvier::trainer
