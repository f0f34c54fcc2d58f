// The stages that pipelines are made of: three small interfaces, and a factory for each stage. A stage is a constant;
// what is random in it follows from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mix.h"
#include "codec/parameters.h"
#include "ranvier/coding.h"
#include "ranvier/types.h"

namespace ranvier {

// Pipelines work on so many values at a time, which with all that is made of them fit in the first level cache. The
// blocks of transforms and quantizers are powers of two up to this, so that no block lies across a border.
inline constexpr std::size_t chunk_values = 4096;

class Sparsifier {
 public:
  virtual ~Sparsifier() = default;
  // The most indices that choose() gives.
  virtual std::size_t most(std::size_t count) const = 0;
  // Which values are sent: ascending indices. `step` as in CodecKey.
  virtual void choose(std::span<const float> values, std::uint64_t seed, std::uint64_t step,
                      std::vector<std::uint32_t>& chosen) const = 0;
  // layers=: by which power of its size a tensor takes part; none: values compete wherever they stand.
  virtual std::optional<double> layers() const { return std::nullopt; }
  // How many values are due at this step.
  virtual std::size_t due(std::size_t count, std::uint64_t step) const = 0;
  // Whether the indices follow from count and seed, so that nobody has to send them.
  virtual bool indices_follow_from_seed() const { return false; }
  // DGC: see there. 0: no velocity.
  virtual double momentum() const { return 0; }
  virtual double clipping_norm() const { return 0; }  // as Codec's
  // For sums of what this one has chosen; null: itself.
  virtual std::unique_ptr<Sparsifier> for_sums() const { return nullptr; }
};

class Transform {
 public:
  virtual ~Transform() = default;
  // `to` may be where `from` is.
  virtual void forward(std::span<const float> from, float* to, std::uint32_t seed) const = 0;
  // The same bits on every machine.
  virtual void backward(std::span<float> values, std::uint32_t seed) const = 0;
  virtual bool is_random() const { return false; }
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;
  // Symbols are 0 … levels - 1, a byte each; 0: symbols of several bytes, which are not packed.
  virtual unsigned levels() const = 0;
  virtual std::size_t symbol_bytes() const { return 1; }
  // The symbol that stands for 0, if there are as many on either side of it, else 0: for coders that give small numbers
  // short codes.
  virtual unsigned zero() const { return 0; }
  // Scales and the like for `count` values: a prefix of whole chunks needs a prefix of them.
  virtual std::size_t side_bytes(std::size_t count) const = 0;
  // The most that so many values or fewer need: where the blocks at the end are smaller ones, fewer may need more.
  virtual std::size_t most_side_bytes(std::size_t count) const { return side_bytes(count); }
  virtual void quantize(std::span<const float> values, std::uint32_t seed, std::uint8_t* symbols,
                        std::byte* side) const = 0;
  // The same bits on every machine. Any symbols give values; throws Error{mismatch} for scales that no encoder writes.
  virtual void dequantize(const std::uint8_t* symbols, const std::byte* side, std::span<float> out) const = 0;
  virtual std::optional<DType> summable_as() const { return std::nullopt; }
  // Whether NaN, infinity and the largest floats come back as they are.
  virtual bool takes_all_floats() const { return false; }
};

// What the stages of a spec add up to.
struct Draft {
  std::unique_ptr<Transform> outer;  // before the sparsifier
  std::unique_ptr<Sparsifier> sparsifier;
  std::vector<std::unique_ptr<Transform>> transforms;
  std::unique_ptr<Quantizer> quantizer;
  std::unique_ptr<Coder> coder;
  bool lossless = false;     // the last stage codes floats, not symbols
  bool biased = false;       // error feedback is wanted
  double variance = 0;       // the quantizer's, at most, over the square of the values; 0: not stated
  bool differences = false;  // values are changes since the last step
  bool normalized = false;   // or over what is usual in their place
};

// One factory a stage, each in the file of its name.
void add_top_k(Parameters&, Draft&);
void add_sidco(Parameters&, Draft&);
void add_random_k(Parameters&, Draft&);
void add_threshold(Parameters&, Draft&);
void add_dgc(Parameters&, Draft&);
void add_hadamard(Parameters&, Draft&);
void add_dct(Parameters&, Draft&);
void add_fp32(Parameters&, Draft&);
void add_bf16(Parameters&, Draft&);
void add_fp16(Parameters&, Draft&);
void add_fp8(Parameters&, Draft&);
void add_mx(Parameters&, Draft&);
void add_natural(Parameters&, Draft&);
void add_int8(Parameters&, Draft&);
void add_int4(Parameters&, Draft&);
void add_int2(Parameters&, Draft&);
void add_qsgd(Parameters&, Draft&);
void add_terngrad(Parameters&, Draft&);
void add_sign(Parameters&, Draft&);
void add_eden(Parameters&, Draft&);

// The Hadamard transform in blocks of so many values, for quantizers that rest on one.
std::unique_ptr<Transform> hadamard_transform(std::size_t block);

}  // namespace ranvier
