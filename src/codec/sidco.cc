// SIDCo: the threshold for a share of the values from a distribution fitted to them, in O(n) and without sorting.
// Abdelmoniem et al., "An Efficient Statistical-based Gradient Compression Technique for Distributed Training Systems",
// MLSys 2021 (arXiv:2101.10761), the exponential variant.
//
// Magnitudes are taken as exponential: thr_1 = -mean ln(d_1) keeps the share d_1 = 0.25. What survives is again taken
// as exponential above its smallest value: thr = min - (mean - min) ln(d), until the share is the ratio. Where the fit
// misses the share by more than a quarter, one last stage corrects it by what it missed.
#include <algorithm>
#include <array>
#include <cmath>

#include "codec/share.h"
#include "codec/stages.h"
#include "codec/top_k.h"
#include "kernel/select.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

constexpr double first_share = 0.25;

class Sidco final : public Sparsifier {
 public:
  explicit Sidco(double ratio) : ratio_(ratio) {}
  std::size_t due(std::size_t count, std::uint64_t) const override { return share_of(count, ratio_); }
  std::size_t most(std::size_t count) const override { return std::min(2 * share_of(count, ratio_) + 1, count); }

  void choose(std::span<const float> values, std::uint64_t, std::uint64_t,
              std::vector<std::uint32_t>& chosen) const override {
    const std::size_t k = share_of(values.size(), ratio_);
    if (values.size() < 64) return choose_top_k(values, k, chosen);
    const float threshold = fit(values);
    const std::size_t found = kernel::count_at_least(values.data(), values.size(), threshold);
    // Ties, and fits that are far out (all values equal): exactly k instead.
    if (found > most(values.size()) || 2 * found < k) return choose_top_k(values, k, chosen);
    choose_above(values, threshold, found, chosen);
  }

 private:
  float fit(std::span<const float> values) const {
    const double all = static_cast<double>(values.size());
    const double mean = kernel::sum_of_magnitudes(values.data(), values.size()) / all;
    double threshold = -mean * std::log(std::max(first_share, ratio_));
    for (int stage = 0; stage < 8; ++stage) {
      const auto tail = kernel::tail_of(values.data(), values.size(), static_cast<float>(threshold));
      const auto survivors = static_cast<double>(tail.count);
      const double share = ratio_ * all / std::max(survivors, 1.0);
      if (share > 0.8 && share < 1.25) break;
      const double above = tail.count == 0 ? mean : tail.sum / survivors - threshold;
      // Above 1 the threshold was too high: the logarithm changes its sign and it comes down.
      threshold = std::max(threshold - above * std::log(std::clamp(share, first_share, 4.0)), 0.0);
    }
    return static_cast<float>(threshold);
  }

  double ratio_;
};

}  // namespace

void add_sidco(Parameters& parameters, Draft& draft) {
  draft.sparsifier = std::make_unique<Sidco>(parameters.number("", 0.01, 1e-6, 1));
  draft.biased = true;
}

}  // namespace ranvier
