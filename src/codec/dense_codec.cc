// The layout of a code: [seed, 4 bytes, where a transform is random] [scales] [symbols, packed or coded].
//
// A chunk of 4096 values goes through all stages while it is in the first level cache: residual added, transformed,
// quantized, and with error feedback dequantized and transformed back at once, to leave the new residual. So memory
// sees the values and the residual once, whatever the stages are.
#include "codec/dense_codec.h"
#include "codec/code_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernel/pack.h"
#include "kernel/symbols.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::size_t seed_bytes = 4;

using Floats = std::array<float, chunk_values>;

// Symbols of a vector that a coder takes or gives as a whole; kept from call to call.
std::vector<std::uint8_t>& symbol_memory(std::size_t count) {
  thread_local std::vector<std::uint8_t> symbols;
  if (symbols.size() < count) symbols.resize(count);
  return symbols;
}

class DenseCodec final : public Pipeline {
 public:
  DenseCodec(PipelineSettings settings, DenseStages stages)
      : Pipeline(std::move(settings)),
        stages_(std::move(stages)),
        header_bytes_(std::ranges::any_of(stages_.transforms, [](const auto& t) { return t->is_random(); }) ? seed_bytes
                                                                                                            : 0) {}

  std::optional<DType> summable_as() const override {
    const bool are_values = stages_.transforms.empty() && !stages_.coder && !settings().feedback;
    return are_values && !settings().way_is_told ? stages_.quantizer->summable_as() : std::nullopt;
  }

  float sum_scale(Rank ranks) const override {
    const bool is_f16 =
        stages_.transforms.empty() && !settings().feedback && stages_.quantizer->summable_as() == DType::f16;
    return is_f16 ? 1 / static_cast<float>(std::bit_ceil(static_cast<unsigned>(ranks))) : 1;
  }

  std::size_t max_bytes(std::size_t count) const override {
    if (count == 0) return 0;
    return header_bytes_ + stages_.quantizer->most_side_bytes(count) +
           (stages_.coder ? stages_.coder->max_bytes(count) : packed_bytes(count));
  }

  std::size_t encode(std::span<const float> values, const CodecState& state, Bytes out,
                     const CodecKey& key) const override {
    require_code_room(spec(), values.size(), max_bytes(values.size()), out.size());
    if (values.empty()) return 0;
    const auto seed = static_cast<std::uint32_t>(mix(key.seed));
    std::memcpy(out.data(), &seed, header_bytes_);
    std::vector<std::uint8_t>* const whole = stages_.coder ? &symbol_memory(values.size()) : nullptr;
    const bool feedback = feeds_back(state);
    const bool takes_all = stages_.quantizer->takes_all_floats() && stages_.transforms.empty() && !feedback;

    Floats work;
    std::array<std::uint8_t, chunk_values> few;
    for (std::size_t begin = 0; begin < values.size(); begin += chunk_values) {
      const std::size_t size = std::min(chunk_values, values.size() - begin);
      const float* const part = values.data() + begin;
      float* const residual = feedback ? state.residual.data() + begin : nullptr;
      const auto chunk_seed = seed_of_chunk(seed, begin);
      // Of what lies in no cache a transform is the first to look at it: it computes while it waits.
      const float* const early = feedback ? nullptr : transformed({part, size}, chunk_seed, work);
      // With error feedback, residuals hold the sum of both while the chunk is coded: less to keep in the cache.
      bool has_code = takes_all || kernel::largest_magnitude(part, size) <= largest_codable;
      if (has_code && feedback && !(kernel::add_and_measure(part, residual, size) <= largest_codable)) {
        kernel::subtract(residual, part, residual, size);
        has_code = false;
      }
      if (!has_code) {
        if (feedback) take_back(values, state.residual, begin, out, whole);
        return 0;
      }
      const float* const coefficients = feedback ? transformed({residual, size}, chunk_seed, work) : early;
      // Symbols of one byte go through memory of their own to be packed; wider ones are as they are sent.
      std::byte* const packed = out.data() + symbols_at(values.size()) + packed_bytes(begin);
      std::uint8_t* const symbols = whole != nullptr                   ? whole->data() + begin
                                    : stages_.quantizer->levels() == 0 ? reinterpret_cast<std::uint8_t*>(packed)
                                                                       : few.data();
      std::byte* const side = out.data() + header_bytes_ + stages_.quantizer->side_bytes(begin);
      // Rounding takes bits of its own: not those that chose the transform's signs.
      stages_.quantizer->quantize({coefficients, size}, ~chunk_seed * 0x9E3779B1U, symbols, side);
      if (feedback) {
        restore(symbols, side, chunk_seed, {work.data(), size});
        kernel::subtract(residual, work.data(), residual, size);
      }
      if (whole == nullptr && stages_.quantizer->levels() != 0)
        kernel::pack(stages_.quantizer->levels(), symbols, size, packed);
      // Coders of integers give the shortest codes to the smallest: 0 first, then the steps to either side of it.
      if (whole != nullptr) kernel::fold_symbols(stages_.quantizer->zero(), symbols, size, symbols);
    }
    const std::size_t at = symbols_at(values.size());
    if (whole == nullptr) return at + packed_bytes(values.size());
    return at + stages_.coder->encode({whole->data(), values.size()}, out.subspan(at));
  }

  void decode(ConstBytes code, std::span<float> out, Combine combine) const override {
    const std::size_t at = symbols_at(out.size());
    const bool right = out.empty()     ? code.empty()
                       : stages_.coder ? code.size() >= at
                                       : code.size() == at + packed_bytes(out.size());
    if (!right)
      throw Error(
          ErrorKind::mismatch,
          fmt::format("the code of {} values by '{}' has {} bytes{}, but {} came; give the same codec and bucket "
                      "sizes to every rank",
                      out.size(), spec(), stages_.coder ? max_bytes(out.size()) : at + packed_bytes(out.size()),
                      stages_.coder ? " at most" : "", code.size()));
    if (out.empty()) return;
    std::uint32_t seed = 0;
    std::memcpy(&seed, code.data(), header_bytes_);
    std::vector<std::uint8_t>* const whole = stages_.coder ? &symbol_memory(out.size()) : nullptr;
    if (whole != nullptr) stages_.coder->decode(code.subspan(at), {whole->data(), out.size()});

    Floats work;
    std::array<std::uint8_t, chunk_values> few;
    for (std::size_t begin = 0; begin < out.size(); begin += chunk_values) {
      const std::size_t size = std::min(chunk_values, out.size() - begin);
      const std::uint8_t* const symbols =
          symbols_of(whole, code.data() + at + packed_bytes(begin), begin, size, few.data());
      const std::byte* const side = code.data() + header_bytes_ + stages_.quantizer->side_bytes(begin);
      float* const place = out.data() + begin;
      const bool replaces = combine == Combine::replace;
      restore(symbols, side, seed_of_chunk(seed, begin), {replaces ? place : work.data(), size});
      if (!replaces) kernel::add(place, work.data(), place, size);
    }
  }

 private:
  static std::uint32_t seed_of_chunk(std::uint32_t seed, std::size_t begin) {
    return static_cast<std::uint32_t>(mix(seed + (std::uint64_t{begin} << 32)));
  }
  std::size_t packed_bytes(std::size_t count) const {
    const unsigned levels = stages_.quantizer->levels();
    if (levels == 0) return count * stages_.quantizer->symbol_bytes();
    // Chunks are packed apart: of ternary symbols, each has a byte that is not full.
    return count / chunk_values * kernel::packed_bytes(levels, chunk_values) +
           kernel::packed_bytes(levels, count % chunk_values);
  }
  std::size_t symbols_at(std::size_t count) const { return header_bytes_ + stages_.quantizer->side_bytes(count); }

  // The values, or `work` where they are transformed.
  const float* transformed(std::span<const float> values, std::uint32_t chunk_seed, Floats& work) const {
    for (const auto& transform : stages_.transforms) {
      transform->forward(values, work.data(), chunk_seed);
      values = {work.data(), values.size()};
    }
    return values.data();
  }

  // The symbols of a chunk: those of `whole`, which a coder gives and takes in its own order, or from `packed`; in
  // `few` where they do not stand there as they are.
  const std::uint8_t* symbols_of(const std::vector<std::uint8_t>* whole, const std::byte* packed, std::size_t begin,
                                 std::size_t size, std::uint8_t* few) const {
    if (whole == nullptr && stages_.quantizer->levels() == 0) return reinterpret_cast<const std::uint8_t*>(packed);
    if (whole == nullptr)
      kernel::unpack(stages_.quantizer->levels(), packed, size, few);
    else
      kernel::unfold_symbols(stages_.quantizer->zero(), whole->data() + begin, size, few);
    return few;
  }

  void restore(const std::uint8_t* symbols, const std::byte* side, std::uint32_t chunk_seed,
               std::span<float> out) const {
    stages_.quantizer->dequantize(symbols, side, out);
    for (auto transform = stages_.transforms.rbegin(); transform != stages_.transforms.rend(); ++transform)
      (*transform)->backward(out, chunk_seed);
  }

  // There is no code after all: residuals become again what they were before the values [0, end) were coded.
  void take_back(std::span<const float> values, std::span<float> residual, std::size_t end, ConstBytes out,
                 const std::vector<std::uint8_t>* whole) const {
    std::uint32_t seed = 0;
    std::memcpy(&seed, out.data(), header_bytes_);
    Floats work;
    std::array<std::uint8_t, chunk_values> few;
    for (std::size_t begin = 0; begin < end; begin += chunk_values) {
      const std::byte* const packed = out.data() + symbols_at(values.size()) + packed_bytes(begin);
      const std::uint8_t* const symbols = symbols_of(whole, packed, begin, chunk_values, few.data());
      restore(symbols, out.data() + header_bytes_ + stages_.quantizer->side_bytes(begin), seed_of_chunk(seed, begin),
              work);
      kernel::add(residual.data() + begin, work.data(), residual.data() + begin, chunk_values);
      kernel::subtract(residual.data() + begin, values.data() + begin, residual.data() + begin, chunk_values);
    }
  }

  const DenseStages stages_;
  const std::size_t header_bytes_;
};

}  // namespace

std::unique_ptr<Codec> dense_codec(PipelineSettings settings, DenseStages stages) {
  return std::make_unique<DenseCodec>(std::move(settings), std::move(stages));
}

}  // namespace ranvier
