// How the workers that hold one model share it: model parallelism, beneath the data parallelism of its replicas.
#pragma once

#include <cstdint>
#include <string_view>

#include "ranvier/types.h"

namespace ranvier::trainer {

struct Division {
  enum class Way : std::uint8_t {
    whole,    // each worker holds all of it
    tensor,   // matrices are cut: each part works on every sample
    pipeline  // layers are dealt out in their order: samples go through all parts
  };
  Way way = Way::whole;
  Rank parts = 1;  // workers of a replica
};

// "none", "tensor:2", "pipeline:4". Throws Error{usage}.
Division parse_division(std::string_view spec);
// Throws Error{usage} for a model that is not cut so, or not into so many parts, and for a number of workers that is no
// whole number of replicas.
void check_division(const Division& division, std::string_view model, Rank world);

}  // namespace ranvier::trainer
