// Top-k sparsification: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017
// (arXiv:1704.05021); its convergence with error feedback, Stich et al., NeurIPS 2018 (arXiv:1809.07599).
//
// Of the squared norm at least the share k / n is kept. Exact: a radix selection, O(n). Sampled: one pass more or less.
#include "codec/top_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "codec/share.h"
#include "codec/stages.h"
#include "kernel/select.h"

namespace ranvier {

void choose_above(std::span<const float> values, float threshold, std::size_t most,
                  std::vector<std::uint32_t>& chosen) {
  chosen.resize(most);
  chosen.resize(kernel::collect_at_least(values.data(), values.size(), threshold, chosen.data(), most));
}

void choose_top_k(std::span<const float> values, std::size_t k, std::vector<std::uint32_t>& chosen) {
  chosen.clear();
  if (k == 0) return;
  const float border = kernel::kth_magnitude(values.data(), values.size(), k);
  choose_above(values, border, values.size(), chosen);
  if (chosen.size() <= k) return;
  // More than k are at least as large as the k-th: of those that equal it, the last ones go.
  std::size_t surplus = chosen.size() - k;
  for (auto index = chosen.end(); surplus > 0;)
    if (std::fabs(values[*--index]) == border) {
      index = chosen.erase(index);
      --surplus;
    }
}

void choose_by_sample(std::span<const float> values, std::size_t k, std::uint64_t seed,
                      std::vector<std::uint32_t>& chosen) {
  constexpr std::size_t sample_values = 4096, tries = 10;
  // A sample in which less than 16 values are due says little.
  const std::size_t wanted = std::max(sample_values, k == 0 ? 0 : 16 * (values.size() / k));
  if (values.size() < 2 * wanted) return choose_top_k(values, k, chosen);
  const std::size_t stride = values.size() / wanted;
  std::vector<float> sample;
  sample.reserve(wanted + 1);
  for (std::size_t at = seed % stride; at < values.size(); at += stride) sample.push_back(std::fabs(values[at]));
  const std::size_t due = std::clamp<std::size_t>(sample.size() * k / values.size(), 1, sample.size());
  const auto place = sample.begin() + static_cast<std::ptrdiff_t>(due - 1);
  std::nth_element(sample.begin(), place, sample.end(), std::greater<>());
  float threshold = *place;
  for (std::size_t attempt = 0; attempt < tries; ++attempt) {
    const std::size_t found = kernel::count_at_least(values.data(), values.size(), threshold);
    if (found >= k - k / 5 && found < most_by_sample(k)) return choose_above(values, threshold, found, chosen);
    threshold *= found < k ? 0.9F : 1.1F;
  }
  choose_top_k(values, k, chosen);
}

namespace {

class TopK final : public Sparsifier {
 public:
  TopK(double ratio, bool exact) : ratio_(ratio), exact_(exact) {}
  std::size_t most(std::size_t count) const override {
    const std::size_t k = share_of(count, ratio_);
    return exact_ ? k : std::min(most_by_sample(k), count);
  }
  void choose(std::span<const float> values, std::uint64_t seed, std::uint64_t,
              std::vector<std::uint32_t>& chosen) const override {
    const std::size_t k = share_of(values.size(), ratio_);
    exact_ ? choose_top_k(values, k, chosen) : choose_by_sample(values, k, seed, chosen);
  }

 private:
  double ratio_;
  bool exact_;
};

}  // namespace

void add_top_k(Parameters& parameters, Draft& draft) {
  constexpr std::array<std::string_view, 2> ways{"exact", "sampled"};
  const double ratio = parameters.number("", 0.01, 1e-6, 1);
  draft.sparsifier = std::make_unique<TopK>(ratio, parameters.choice("select", "exact", ways) == "exact");
  draft.biased = true;
}

}  // namespace ranvier
