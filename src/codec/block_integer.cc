// int8, int4, int2: blocks of integers that share a scale, reach / limit, kept as bf16 and rounded up. Dettmers et al.,
// "8-bit Optimizers via Block-wise Quantization", ICLR 2022 (arXiv:2110.02861); with a Hadamard transform before it,
// Jia et al., "SDP4Bit", NeurIPS 2024 (arXiv:2410.15526).
//
// Error of nearest rounding: half a step, which is at most max / (2 limit) * (1 + 2^-7). Stochastic rounding is
// unbiased, with an error of less than a step. limit = 127, 7 and 1; int2 has three levels, of which five go into a
// byte.
#include "codec/grid.h"

namespace ranvier {

void add_int8(Parameters& parameters, Draft& draft) { add_grid(parameters, draft, 127, 64, "nearest"); }
void add_int4(Parameters& parameters, Draft& draft) { add_grid(parameters, draft, 7, 64, "nearest"); }
void add_int2(Parameters& parameters, Draft& draft) { add_grid(parameters, draft, 1, 64, "nearest"); }

}  // namespace ranvier
