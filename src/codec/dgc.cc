// Deep Gradient Compression: top-k for ratios where plain error feedback fails. Lin, Han, Mao, Wang and Dally, "Deep
// Gradient Compression: Reducing the Communication Bandwidth for Distributed Training", ICLR 2018 (arXiv:1712.01887).
//
// Momentum is corrected: it is applied before values are held back (velocity u <- m u + g, residual v <- v + u), so the
// optimizer has none. Factor masking: where a value is sent, u and v become 0. Warm-up: the first steps send 25 %, 6.25
// %, 1.56 % and 0.4 % of the values, an equal number of steps each. The threshold comes from a sample. Sums are
// sparsified once more, by their owner, with plain error feedback.
//
// Local clipping: gradients are clipped before they are added to what is held back, which is a sum of many steps. The
// sum of W independent gradients of a norm has sqrt(W) times that norm, so each rank's limit is the global one over
// sqrt(W). The norm is a tensor's, as in the authors' code (github.com/synxlin/deep-gradient-compression): the model's
// is not known before the last bucket, and a bucket's would make training depend on how buckets are formed.
#include <algorithm>
#include <cmath>

#include "codec/share.h"
#include "codec/stages.h"
#include "codec/top_k.h"

namespace ranvier {
namespace {

struct DgcSettings {
  double ratio;
  double momentum;
  std::size_t warm_up;  // steps
  double clip;          // 0: none
  std::optional<double> layers;
};

class Dgc final : public Sparsifier {
 public:
  explicit Dgc(const DgcSettings& settings) : settings_(settings) {}
  double momentum() const override { return settings_.momentum; }
  double clipping_norm() const override { return settings_.clip; }
  std::unique_ptr<Sparsifier> for_sums() const override {
    return settings_.momentum == 0
               ? nullptr
               : std::make_unique<Dgc>(DgcSettings{settings_.ratio, 0, settings_.warm_up, 0, settings_.layers});
  }
  std::optional<double> layers() const override { return settings_.layers; }
  std::size_t due(std::size_t count, std::uint64_t step) const override { return share_of(count, ratio_at(step)); }
  std::size_t most(std::size_t count) const override {
    return std::min(most_by_sample(share_of(count, ratio_at(0))), count);
  }
  void choose(std::span<const float> values, std::uint64_t seed, std::uint64_t step,
              std::vector<std::uint32_t>& chosen) const override {
    choose_by_sample(values, due(values.size(), step), seed, chosen);
  }

 private:
  double ratio_at(std::uint64_t step) const {
    constexpr std::uint64_t stages = 4;
    if (step >= settings_.warm_up) return settings_.ratio;
    const auto stage = step * stages / settings_.warm_up;
    return std::max(settings_.ratio, std::pow(0.25, static_cast<double>(stage + 1)));
  }

  DgcSettings settings_;
};

}  // namespace

void add_dgc(Parameters& parameters, Draft& draft) {
  const double ratio = parameters.number("", 0.001, 1e-6, 1);
  const double momentum = parameters.number("momentum", 0.9, 0, 0.999);
  const std::size_t warm_up = parameters.count("warmup", 0, 0, 1'000'000'000);
  draft.sparsifier = std::make_unique<Dgc>(DgcSettings{.ratio = ratio,
                                                       .momentum = momentum,
                                                       .warm_up = warm_up,
                                                       .clip = parameters.number("clip", 0, 0, 1e15),
                                                       .layers = parameters.optional_number("layers", 0, 1)});
  draft.biased = true;
}

}  // namespace ranvier
