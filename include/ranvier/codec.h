// A codec turns float values into fewer bytes and back. It is a pipeline of stages, written as a spec:
//
//   sparsify + transform + quantize + code      "bf16", "hadamard:32+int4+huffman", "topk:0.01+int8+rans"
//
// each stage optional. docs/codecs.md has every stage's rule and error bound; `ranvier codec list` the short of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/types.h"

namespace ranvier {

// What an encoder keeps for a tensor from step to step, a float for each of its values and each part; zero at first.
struct CodecState {
  std::span<float> residual = {};  // error feedback: what codes have lost so far
  std::span<float> velocity = {};  // momentum, where the codec corrects it (dgc)
};

// A part of a tensor: so many of its values.
struct TensorPiece {
  std::size_t size = 0;
  std::size_t of = 0;
};

// The pieces of `count` values from `begin` on, of values that consist of `pieces`. None of none.
std::vector<TensorPiece> cut(std::span<const TensorPiece> pieces, std::size_t begin, std::size_t count);

// What is random in a code follows from this alone, so that a step that is run again gives the same bytes.
struct CodecKey {
  std::uint64_t seed = 0;  // another one for each tensor, step and rank
  std::uint64_t step = 0;  // how often this tensor has been encoded before: for stages that warm up
  // What the values are, in their order, for codecs that choose by tensor; none: one tensor.
  std::span<const TensorPiece> pieces = {};
};

enum class Combine : std::uint8_t { replace, add };

// How the codes of all ranks become one average (exchange.h). `cheaper`: whichever of the others takes less time.
enum class Way : std::uint8_t { cheaper, reduce_scatter, all_gather };

// A value of more than this has no code but a cast's: there squares and sums of blocks would leave the range of f32.
inline constexpr float largest_codable = 0x1p50F;

// Several threads may use one codec at once.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string_view spec() const = 0;
  // The most bytes that `count` values, or fewer, may need.
  virtual std::size_t max_bytes(std::size_t count) const = 0;
  // How many parts of CodecState it wants: 0 none, 1 the residual, 2 the velocity as well. A codec whose expectation is
  // not the value itself wants error feedback, unless its spec refuses it (ef=0).
  virtual std::size_t state_parts() const { return 0; }
  // Writes the code of `values`, or with error feedback of values + residual, to `out` (at least max_bytes); returns
  // its length in bytes. The residual becomes what the code has lost: values + residual - decoded. Fused: `values` and
  // residual are read, and the residual written, once. Whoever brings less state than state_parts does without it.
  // Returns 0 where a value is NaN, infinite or beyond 2^50 (but to casts, which take them): those have no code, and
  // the state stays as it was, up to the rounding of its sums. But a velocity decays where residual and momentum
  // together have outgrown 2^50: else no later step would have a code either.
  virtual std::size_t encode(std::span<const float> values, const CodecState& state, Bytes out,
                             const CodecKey& key) const = 0;
  // Reads a code made by encode for out.size() values. Throws Error{mismatch} for bytes that are not one.
  virtual void decode(ConstBytes code, std::span<float> out, Combine combine = Combine::replace) const = 0;
  // The element type whose sum, done on codes, is the code of the sum (up to its rounding); none if codes cannot be
  // added. Such a codec reduces in transit: all_reduce runs on the codes themselves.
  virtual std::optional<DType> summable_as() const { return std::nullopt; }
  // Where in a code those elements begin. What stands before them follows from the key, which all ranks then share.
  virtual std::size_t summable_at() const { return 0; }
  // By what a sum of so many ranks' values is multiplied before it is coded. f16 ends at 65504, which sums, and partial
  // sums in transit, reach long before averages do: a power of two, which changes no digit, keeps them below their
  // largest value. 1 where the range is that of f32, or a residual takes what a code cuts off.
  virtual float sum_scale(Rank) const { return 1; }
  // The codec for sums of what this one decodes, where it is another one; null: this one.
  virtual std::shared_ptr<const Codec> for_sums() const { return nullptr; }
  // Its velocity takes the place of the optimizer's momentum, which then has to be 0.
  virtual double momentum() const { return 0; }
  // Not 0: each of W ranks first scales its gradients of each tensor down to this norm over sqrt(W) (dgc). Exchanges
  // do, which see whole tensors.
  virtual double clipping_norm() const { return 0; }
  // Whether CodecKey::pieces makes a difference.
  virtual bool chooses_by_tensor() const { return false; }
  virtual Way way() const { return Way::reduce_scatter; }
  // EF21: what it is given has to be the change of the values since the step before, and what comes back is the change
  // of their average. Its residual makes up for what codes of changes have lost.
  virtual bool of_differences() const { return false; }
  // What it is given has to be values over what is usual in their place, and what comes back is to be multiplied by
  // that: see src/exchange/normalized.cc. It keeps no residual.
  virtual bool of_normalized() const { return false; }
};

// A codec by its spec, or by the name of a preset. Throws Error{usage} naming the wrong stage and what to write
// instead.
std::unique_ptr<Codec> make_codec(std::string_view spec);

// Specs with names: what to take if you do not want to choose. docs/benchmarks.md has how they were chosen and tested.
struct Preset {
  std::string_view name;
  std::string_view spec;
  std::string_view meant_for;
};
std::span<const Preset> presets();
// The spec that a preset's name stands for; anything else as it is.
std::string_view spec_of(std::string_view preset_or_spec);

// What may stand in a spec, for people to choose from.
enum class StageKind : std::uint8_t { sparsify, transform, quantize, code, exchange };
std::string_view name_of(StageKind);
struct StageInfo {
  std::string_view name;
  StageKind kind;
  std::string_view rule;        // in a line
  std::string_view parameters;  // "value: …; key=default: …"
  std::string_view bias;        // "unbiased", or why not; then error feedback is on unless ef=0
  std::string_view source;
};
std::span<const StageInfo> codec_stages();

}  // namespace ranvier
