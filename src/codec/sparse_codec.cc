// The layout of a code: [how many are chosen, 4 bytes] [bytes of the indices' code, 4 bytes] [indices] [the values'
// code]. Where indices follow from a seed, the 8 bytes of that seed stand in place of them. An index is coded as its
// gap to the one before, Golomb-Rice, or all of them as a bitmap, whichever is shorter (coding.h).
//
// With momentum, this is DGC's accumulation: velocity u <- m u + g, residual v <- v + u, the largest of v are sent, and
// both are zeroed there, so that stale momentum does not push a value on twice (Lin et al., see dgc.cc).
#include "codec/sparse_codec.h"
#include "codec/code_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/dense_codec.h"
#include "codec/layers.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::size_t count_bytes = 4;
constexpr std::size_t index_length_bytes = 4;
constexpr std::size_t index_seed_bytes = 8;

template <class Number>
void put(Bytes out, std::size_t at, Number number) {
  std::memcpy(out.data() + at, &number, sizeof number);
}
template <class Number>
Number get(ConstBytes code, std::size_t at) {
  Number number;
  std::memcpy(&number, code.data() + at, sizeof number);
  return number;
}

// Memory kept from call to call.
struct Scratch {
  std::vector<float> kept, lost;
  std::vector<std::uint32_t> chosen;
};
Scratch& scratch() {
  thread_local Scratch memory;
  return memory;
}

class SparseCodec final : public Pipeline {
 public:
  SparseCodec(PipelineSettings settings, std::shared_ptr<const Sparsifier> sparsifier,
              std::shared_ptr<const Codec> values)
      : Pipeline(std::move(settings)), sparsifier_(std::move(sparsifier)), values_(std::move(values)) {}

  std::size_t state_parts() const override { return momentum() > 0 ? 2 : Pipeline::state_parts(); }
  // Values at places that all ranks know can be added where they stand.
  std::optional<DType> summable_as() const override {
    const bool are_known = sparsifier_->indices_follow_from_seed() && !settings().way_is_told;
    return are_known ? values_->summable_as() : std::nullopt;
  }
  std::size_t summable_at() const override { return summable_as() ? count_bytes + index_seed_bytes : 0; }
  double momentum() const override { return sparsifier_->momentum(); }
  double clipping_norm() const override { return sparsifier_->clipping_norm(); }
  bool chooses_by_tensor() const override { return sparsifier_->layers().has_value(); }
  std::shared_ptr<const Codec> for_sums() const override {
    auto other = sparsifier_->for_sums();
    return other ? sparse_codec(settings(), std::move(other), values_) : nullptr;
  }

  std::size_t max_bytes(std::size_t count) const override {
    if (count == 0) return 0;
    const std::size_t most = sparsifier_->most(count);
    const std::size_t indices = sparsifier_->indices_follow_from_seed()
                                    ? index_seed_bytes
                                    : index_length_bytes + max_index_bytes(most, static_cast<std::uint32_t>(count));
    return count_bytes + indices + values_->max_bytes(most);
  }

  std::size_t encode(std::span<const float> values, const CodecState& state, Bytes out,
                     const CodecKey& key) const override {
    if (values.size() > std::numeric_limits<std::uint32_t>::max())
      throw Error(
          ErrorKind::usage,
          fmt::format("'{}' codes at most 4294967295 values at once, and these are {}; take smaller buckets, or "
                      "more servers",
                      spec(), values.size()));
    require_code_room(spec(), values.size(), max_bytes(values.size()), out.size());
    if (values.empty()) return 0;
    auto& [kept, lost, chosen] = scratch();
    const bool feedback = feeds_back(state);
    const bool with_momentum = feedback && momentum() > 0 && !state.velocity.empty();
    std::span<const float> candidates = values;
    if (!(kernel::largest_magnitude(values.data(), values.size()) <= largest_codable)) return 0;
    if (feedback) {
      if (with_momentum) {
        kernel::add_momentum(values.data(), static_cast<float>(momentum()), state.velocity.data(),
                             state.residual.data(), values.size());
      } else {
        kernel::add(state.residual.data(), values.data(), state.residual.data(), values.size());
      }
      candidates = state.residual;
    }

    const std::uint64_t seed = mix(key.seed);
    if (const auto layers = sparsifier_->layers(); layers && key.pieces.size() > 1)
      choose_by_tensor(candidates, sparsifier_->due(values.size(), key.step), key.pieces, *layers, seed, chosen);
    else
      sparsifier_->choose(candidates, seed, key.step, chosen);
    kept.resize(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) kept[i] = candidates[chosen[i]];

    put(out, 0, static_cast<std::uint32_t>(chosen.size()));
    std::size_t at = count_bytes;
    if (sparsifier_->indices_follow_from_seed()) {
      put(out, at, seed);
      at += index_seed_bytes;
    } else {
      const std::size_t bytes =
          encode_indices(chosen, static_cast<std::uint32_t>(values.size()), out.subspan(at + index_length_bytes));
      put(out, at, static_cast<std::uint32_t>(bytes));
      at += index_length_bytes + bytes;
    }
    const std::size_t bytes = values_->encode(kept, {}, out.subspan(at), {.seed = seed ^ 1, .step = key.step});
    if (bytes == 0 && !kept.empty()) {  // a residual has grown beyond what has a code
      if (with_momentum) {
        kernel::subtract(state.residual.data(), state.velocity.data(), state.residual.data(), values.size());
        // m u: undecayed it would reach as far at every step, and never anything of it could be sent.
        kernel::subtract(state.velocity.data(), values.data(), state.velocity.data(), values.size());
      } else if (feedback) {
        kernel::subtract(state.residual.data(), values.data(), state.residual.data(), values.size());
      }
      return 0;
    }
    if (feedback) {
      lost.resize(kept.size());
      values_->decode(out.subspan(at, bytes), lost, Combine::replace);
      for (std::size_t i = 0; i < chosen.size(); ++i) state.residual[chosen[i]] = kept[i] - lost[i];
      if (with_momentum)
        for (const std::uint32_t index : chosen) state.velocity[index] = 0;
    }
    return at + bytes;
  }

  void decode(ConstBytes code, std::span<float> out, Combine combine) const override {
    if (combine == Combine::replace) std::fill(out.begin(), out.end(), 0.0F);
    if (out.empty() && code.empty()) return;
    const bool seeded = sparsifier_->indices_follow_from_seed();
    std::size_t at = count_bytes + (seeded ? index_seed_bytes : index_length_bytes);
    if (out.empty() || code.size() < at) refuse(out.size(), "is too short");
    const auto count = get<std::uint32_t>(code, 0);
    if (count > sparsifier_->most(out.size())) refuse(out.size(), "has too many values");
    auto& [kept, lost, chosen] = scratch();
    kept.resize(count);
    if (seeded) {
      sparsifier_->choose(out, get<std::uint64_t>(code, count_bytes), 0, chosen);
      if (chosen.size() != count) refuse(out.size(), "has another number of values");
    } else {
      const auto bytes = get<std::uint32_t>(code, count_bytes);
      if (bytes > code.size() - at) refuse(out.size(), "is too short for its indices");
      chosen.resize(count);
      decode_indices(code.subspan(at, bytes), static_cast<std::uint32_t>(out.size()), chosen);
      at += bytes;
    }
    values_->decode(code.subspan(at), kept, Combine::replace);
    for (std::size_t i = 0; i < count; ++i) out[chosen[i]] += kept[i];
  }

 private:
  [[noreturn]] void refuse(std::size_t count, std::string_view problem) const {
    throw Error(ErrorKind::mismatch,
                fmt::format("a code of {} values by '{}' {}; give the same codec and bucket sizes to "
                            "every rank",
                            count, spec(), problem));
  }

  const std::shared_ptr<const Sparsifier> sparsifier_;
  const std::shared_ptr<const Codec> values_;
};

}  // namespace

std::unique_ptr<Codec> sparse_codec(PipelineSettings settings, std::shared_ptr<const Sparsifier> sparsifier,
                                    std::shared_ptr<const Codec> values) {
  return std::make_unique<SparseCodec>(std::move(settings), std::move(sparsifier), std::move(values));
}

}  // namespace ranvier
