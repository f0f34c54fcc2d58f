// A codec turns float values into fewer bytes and back. Pipelines of stages are written as a spec: "bf16".
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ranvier/types.h"

namespace ranvier {

class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string_view spec() const = 0;
  // The most bytes that `count` values may need.
  virtual std::size_t max_bytes(std::size_t count) const = 0;
  // Writes the code of `values` to `out` (at least max_bytes); returns its length in bytes.
  virtual std::size_t encode(std::span<const float> values, Bytes out) const = 0;
  // Reads a code made by encode for out.size() values. Throws Error{mismatch} for bytes that are not one.
  virtual void decode(ConstBytes code, std::span<float> out) const = 0;
  // The element type whose sum, done on codes, is the code of the sum (up to its rounding); none if codes cannot be
  // added. Such a codec reduces in transit: all_reduce runs on the codes themselves.
  virtual std::optional<DType> summable_as() const { return std::nullopt; }
};

// bfloat16, round to nearest even: 2 bytes a value, relative error at most 2^-8. Kalamkar et al., arXiv:1905.12322.
std::unique_ptr<Codec> bf16_codec();

// A codec by its spec. Throws Error{usage} naming the wrong stage and the nearest right one.
std::unique_ptr<Codec> make_codec(std::string_view spec);

}  // namespace ranvier
