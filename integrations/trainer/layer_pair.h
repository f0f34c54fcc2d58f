// Two full layers of which a team that divides matrices holds a part each: outputs of the first, inputs of the second,
// whose sum is all parts'. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, 2019, section 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "integrations/trainer/layers.h"
#include "integrations/trainer/model_team.h"

namespace ranvier::trainer {

class LayerPair {
 public:
  // `units` of what is between are dealt out to the parts of the team, which outlives this: each is as many
  // neighbouring outputs of the first layer, in each of `groups` equal groups of them, and as many inputs of the
  // second.
  LayerPair(Layer first, Layer second, std::int64_t units, ModelTeam& team, std::int64_t groups = 1);

  // So many units are here.
  std::int64_t units() const { return units_; }
  const Layer& first() const { return first_; }
  const Layer& second() const { return second_; }
  // Those of their tensors of which other parts hold the rest.
  std::vector<at::Tensor> divided_first() const;
  std::vector<at::Tensor> divided_second() const;

  // What the first layer makes of x: of this part's units.
  at::Tensor begin(const at::Tensor& x) const;
  // What the second makes of everybody's units.
  at::Tensor end(const at::Tensor& x) const;

 private:
  ModelTeam* team_;  // null: whole
  Layer first_;
  Layer second_;
  std::int64_t units_;
};

}  // namespace ranvier::trainer
