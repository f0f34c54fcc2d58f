// Top-k sparsification: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017
// (arXiv:1704.05021); its convergence with error feedback, Stich et al., NeurIPS 2018 (arXiv:1809.07599).
//
// Of the squared norm at least the share k / n is kept. Exact: one pass and a selection among few, or a radix
// selection where a sample misleads; O(n). Sampled: one pass as a rule.
#include "codec/top_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "codec/share.h"
#include "codec/stages.h"
#include "kernel/select.h"

namespace ranvier {

void choose_above(std::span<const float> values, float threshold, std::size_t most,
                  std::vector<std::uint32_t>& chosen) {
  // Making room for all would cost more than counting them.
  if (most > values.size() / 8) most = std::min(most, kernel::count_at_least(values.data(), values.size(), threshold));
  chosen.resize(most);
  chosen.resize(kernel::collect_at_least(values.data(), values.size(), threshold, chosen.data(), most));
}

namespace {

// So many values that 16 of the k largest are due among them, and 164 at 1 %.
std::size_t sample_size(std::size_t count, std::size_t k) { return std::max<std::size_t>(16384, 16 * (count / k)); }

// The magnitude that about `rank` values reach, as far as the sample knows.
float threshold_by_sample(std::span<const float> values, std::size_t size, std::size_t rank, std::uint64_t seed) {
  const std::size_t stride = values.size() / size;
  std::vector<float> sample(values.size() / stride);
  // One of each `stride` neighbours, at a random place: equal distances would see few rows of a matrix, or one.
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const std::size_t begin = i * stride;
    sample[i] = values[begin + (((mix(seed + begin) >> 32) * stride) >> 32)];
  }
  const std::size_t due = std::clamp<std::size_t>(sample.size() * rank / values.size(), 1, sample.size());
  return kernel::kth_magnitude(sample.data(), sample.size(), due);
}

// Of the chosen, among which are the k largest, exactly those; of equal ones at the border, the first.
void keep_largest(std::span<const float> values, std::size_t k, std::vector<std::uint32_t>& chosen) {
  if (chosen.size() <= k) return;
  std::vector<float> magnitudes;
  magnitudes.reserve(chosen.size());
  for (const std::uint32_t index : chosen) magnitudes.push_back(std::fabs(values[index]));
  const float border = kernel::kth_magnitude(magnitudes.data(), magnitudes.size(), k);
  std::size_t larger = 0;
  for (const float magnitude : magnitudes) larger += magnitude > border ? 1U : 0U;
  std::size_t equal = k - larger, kept = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    // Without a branch for the common case: which way it goes is a toss.
    chosen[kept] = chosen[i];
    kept += magnitudes[i] > border ? 1U : 0U;
    if (magnitudes[i] == border && equal > 0) {
      --equal;
      ++kept;
    }
  }
  chosen.resize(kept);
}

}  // namespace

void choose_top_k(std::span<const float> values, std::size_t k, std::vector<std::uint32_t>& chosen, Zeros zeros) {
  chosen.clear();
  if (k == 0) return;
  // One pass finds those above a threshold that a quarter more are likely to reach; the k largest are among them unless
  // they are fewer than k.
  const std::size_t size = sample_size(values.size(), k), likely = k + k / 4 + 1, most = 2 * k + 64;
  if (values.size() >= 4 * size && most < values.size()) {
    choose_above(values, threshold_by_sample(values, size, likely, 0), most, chosen);
    if (chosen.size() >= k && chosen.size() < most) return keep_largest(values, k, chosen);
  }
  const float least = zeros == Zeros::taken ? 0 : std::numeric_limits<float>::denorm_min();
  choose_above(values, std::max(kernel::kth_magnitude(values.data(), values.size(), k), least), values.size(), chosen);
  keep_largest(values, k, chosen);
}

void choose_by_sample(std::span<const float> values, std::size_t k, std::uint64_t seed,
                      std::vector<std::uint32_t>& chosen) {
  constexpr int tries = 10;
  const std::size_t size = k == 0 ? values.size() : sample_size(values.size(), k);
  if (values.size() < 2 * size) return choose_top_k(values, k, chosen);
  float threshold = threshold_by_sample(values, size, k, seed);
  for (int attempt = 0; attempt < tries; ++attempt) {
    // Collecting stops where there are too many, so that counting first would only be a pass more.
    choose_above(values, threshold, most_by_sample(k), chosen);
    if (chosen.size() >= k - k / 5 && chosen.size() < most_by_sample(k)) return;
    threshold *= chosen.size() < k ? 0.9F : 1.1F;
  }
  choose_top_k(values, k, chosen);
}

namespace {

class TopK final : public Sparsifier {
 public:
  TopK(double ratio, bool exact, std::optional<double> layers) : ratio_(ratio), exact_(exact), layers_(layers) {}
  std::optional<double> layers() const override { return layers_; }
  std::size_t due(std::size_t count, std::uint64_t) const override { return share_of(count, ratio_); }
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
  std::optional<double> layers_;
};

}  // namespace

void add_top_k(Parameters& parameters, Draft& draft) {
  constexpr std::array<std::string_view, 2> ways{"exact", "sampled"};
  const double ratio = parameters.number("", 0.01, 1e-6, 1);
  const bool exact = parameters.choice("select", "exact", ways) == "exact";
  draft.sparsifier = std::make_unique<TopK>(ratio, exact, parameters.optional_number("layers", 0, 1));
  draft.biased = true;
}

}  // namespace ranvier
