// int8, int4, int2: blocks of integers that share a scale, reach / limit, kept as bf16 and rounded up. Dettmers et al.,
// "8-bit Optimizers via Block-wise Quantization", ICLR 2022 (arXiv:2110.02861); with a Hadamard transform before it,
// Jia et al., "SDP4Bit", NeurIPS 2024 (arXiv:2410.15526).
//
// Error of nearest rounding: half a step, which is at most max / (2 limit) * (1 + 2^-7). Stochastic rounding is
// unbiased, with an error of less than a step. limit = 127, 7 and 1; int2 has three levels, of which five go into a
// byte.
#include <array>

#include "codec/grid.h"

namespace ranvier {
namespace {

void add_integer(Parameters& parameters, Draft& draft, int limit, std::size_t block) {
  constexpr std::array<std::string_view, 2> roundings{"nearest", "stochastic"};
  const bool stochastic = parameters.choice("rounding", "nearest", roundings) == "stochastic";
  draft.quantizer = grid_quantizer({.block = parameters.block(block), .limit = limit, .stochastic = stochastic},
                                   reach_of(parameters));
  draft.biased = draft.biased || !stochastic;
}

}  // namespace

void add_int8(Parameters& parameters, Draft& draft) { add_integer(parameters, draft, 127, 64); }
void add_int4(Parameters& parameters, Draft& draft) { add_integer(parameters, draft, 7, 64); }
void add_int2(Parameters& parameters, Draft& draft) { add_integer(parameters, draft, 1, 64); }

}  // namespace ranvier
