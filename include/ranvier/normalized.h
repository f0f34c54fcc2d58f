// Values over what is usual in their place: the arithmetic, apart from how codes travel. src/exchange/normalized.cc has
// the exchange and the reasons; the hook of the Python package does the same over any process group.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ranvier/exchange.h"

namespace ranvier {

// Of a bucket, `magnitudes` are the means that averages have had in each place so far, all of them 0 at first, and
// `factor` makes them what values are divided by; 0: by 1, since there is no measure. The same bits on all ranks.
float normalizing_factor(std::span<const float> magnitudes);
void normalize(std::span<float> values, std::span<const float> magnitudes, float factor);
void denormalize(std::span<float> values, std::span<const float> magnitudes, float factor);
// Once `values` are the average.
void follow_magnitudes(std::span<const float> values, std::span<float> magnitudes);

// `inner` keeps nothing from step to step. `world`: of how many ranks.
std::unique_ptr<Exchange> normalized_exchange(std::unique_ptr<Exchange> inner, std::string spec, Rank world);

}  // namespace ranvier
