// QSGD: values on a grid of s steps to each side of zero, rounded at random so that the expectation is the value.
// Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NIPS 2017
// (arXiv:1610.02132). Most symbols are 0, so that an entropy coder belongs behind it.
//
// With the norm of the paper (l2) the variance is at most min(d / s^2, sqrt(d) / s) * norm^2 in a block of d; the
// largest magnitude (max), the default, gives finer steps and fewer zeros.
//
// To the nearest step (rounding=nearest) an error is half as large as by chance, and biased: a uniform quantizer with a
// coder behind it, which loses little more than any code of so many bits has to (Gish and Pierce, "Asymptotically
// Efficient Quantizing", IEEE Transactions on Information Theory 1968), with error feedback for what it loses.
#include "codec/grid.h"

namespace ranvier {

void add_qsgd(Parameters& parameters, Draft& draft) {
  const auto steps = static_cast<int>(parameters.count("", 7, 1, 127));
  add_grid(parameters, draft, steps, 128, "stochastic");
}

}  // namespace ranvier
