// The layout of a code: [seed, 4 bytes] [code of the coefficients].
#include "codec/transformed_codec.h"
#include "codec/code_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codec/dense_codec.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::size_t transform_seed_bytes = 4;

// Memory kept from call to call.
std::vector<float>& coefficient_memory(std::size_t count) {
  thread_local std::vector<float> memory;
  memory.resize(count);
  return memory;
}

class TransformedCodec final : public Pipeline {
 public:
  TransformedCodec(PipelineSettings settings, std::unique_ptr<Transform> transform, std::unique_ptr<Codec> coefficients)
      : Pipeline(std::move(settings)), transform_(std::move(transform)), coefficients_(std::move(coefficients)) {}

  std::size_t max_bytes(std::size_t count) const override {
    return count == 0 ? 0 : transform_seed_bytes + coefficients_->max_bytes(count);
  }

  std::size_t encode(std::span<const float> values, const CodecState& state, Bytes out,
                     const CodecKey& key) const override {
    require_code_room(spec(), values.size(), max_bytes(values.size()), out.size());
    if (values.empty() || !(kernel::largest_magnitude(values.data(), values.size()) <= largest_codable)) return 0;
    const bool feedback = feeds_back(state);
    std::vector<float>& work = coefficient_memory(values.size());
    if (feedback)
      kernel::add(state.residual.data(), values.data(), work.data(), values.size());
    else
      std::ranges::copy(values, work.begin());
    const auto seed = static_cast<std::uint32_t>(mix(key.seed));
    std::memcpy(out.data(), &seed, transform_seed_bytes);
    each_chunk(work, seed, [&](std::span<float> chunk, std::uint32_t chunk_seed) {
      transform_->forward(chunk, chunk.data(), chunk_seed);
    });
    const std::size_t bytes =
        coefficients_->encode(work, {}, out.subspan(transform_seed_bytes), {.seed = key.seed ^ 1, .step = key.step});
    // A coefficient may be sqrt(n) times its values, and so beyond what has a code where they are not.
    if (bytes == 0) return 0;
    if (feedback) {
      kernel::add(state.residual.data(), values.data(), state.residual.data(), values.size());
      decode(out.first(transform_seed_bytes + bytes), work, Combine::replace);
      kernel::subtract(state.residual.data(), work.data(), state.residual.data(), values.size());
    }
    return transform_seed_bytes + bytes;
  }

  void decode(ConstBytes code, std::span<float> out, Combine combine) const override {
    if (out.empty() && code.empty()) return;
    if (out.empty() || code.size() < transform_seed_bytes)
      throw Error(ErrorKind::mismatch, fmt::format("a code of {} values by '{}' has {} bytes; give the same codec and "
                                                   "bucket sizes to every rank",
                                                   out.size(), spec(), code.size()));
    std::uint32_t seed = 0;
    std::memcpy(&seed, code.data(), transform_seed_bytes);
    std::vector<float> sum;
    if (combine == Combine::add) sum.assign(out.begin(), out.end());
    coefficients_->decode(code.subspan(transform_seed_bytes), out, Combine::replace);
    each_chunk(out, seed,
               [&](std::span<float> chunk, std::uint32_t chunk_seed) { transform_->backward(chunk, chunk_seed); });
    if (combine == Combine::add) kernel::add(sum.data(), out.data(), out.data(), out.size());
  }

 private:
  template <class Body>
  static void each_chunk(std::span<float> values, std::uint32_t seed, const Body& body) {
    for (std::size_t begin = 0; begin < values.size(); begin += chunk_values) {
      const auto chunk = values.subspan(begin, std::min(chunk_values, values.size() - begin));
      body(chunk, static_cast<std::uint32_t>(mix(seed + (std::uint64_t{begin} << 32))));
    }
  }

  const std::unique_ptr<Transform> transform_;
  const std::unique_ptr<Codec> coefficients_;
};

}  // namespace

std::unique_ptr<Codec> transformed_codec(PipelineSettings settings, std::unique_ptr<Transform> transform,
                                         std::unique_ptr<Codec> coefficients) {
  return std::make_unique<TransformedCodec>(std::move(settings), std::move(transform), std::move(coefficients));
}

}  // namespace ranvier
