#include "integrations/trainer/layer_pair.h"

#include <ATen/ops/linear.h>

namespace ranvier::trainer {

LayerPair::LayerPair(Layer first, Layer second, std::int64_t units, ModelTeam& team, std::int64_t groups)
    : team_(team.way() == Division::Way::tensor ? &team : nullptr),
      first_(std::move(first)),
      second_(std::move(second)),
      units_(units) {
  if (team_ == nullptr) return;
  const std::int64_t begin = units * team.part() / team.parts();
  units_ = units * (team.part() + 1) / team.parts() - begin;
  const std::int64_t size = second_.weight.size(1) / units;
  first_ = first_.outputs(begin * size, units_ * size, groups);
  second_ = second_.inputs(begin * size, units_ * size);
}

std::vector<at::Tensor> LayerPair::divided_first() const {
  return team_ == nullptr ? std::vector<at::Tensor>{} : std::vector{first_.weight, first_.bias};
}
std::vector<at::Tensor> LayerPair::divided_second() const {
  return team_ == nullptr ? std::vector<at::Tensor>{} : std::vector{second_.weight};
}

at::Tensor LayerPair::begin(const at::Tensor& x) const {
  return linear(team_ == nullptr ? x : team_->enter(x), first_);
}

at::Tensor LayerPair::end(const at::Tensor& x) const {
  if (team_ == nullptr) return linear(x, second_);
  return team_->leave(at::linear(x, second_.weight)).add(second_.bias);
}

}  // namespace ranvier::trainer
