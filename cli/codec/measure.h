// What a codec makes of given values, and how fast.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::cli {

struct CodecSpeed {
  std::string spec;        // the stages up to here
  double encode_gbps = 0;  // of f32 input
  double decode_gbps = 0;
};

struct CodecRow {
  std::string spec;
  double bits_per_value = 0;
  double relative_error = 0;  // L2 norm of the error over that of the values
  double cosine = 0;          // between values and decoded; where one of the two is zero 0, where both are 1
  double largest_error = 0;
  double encode_gbps = 0;
  double decode_gbps = 0;
  std::vector<CodecSpeed> stages;  // with the first stage alone, the first two, …
};

// One encoding without error feedback. Throws Error{usage} for a wrong spec, and Error{config} for values that have no
// code.
CodecRow measure_codec(const std::string& spec, std::span<const float> values);

// None where values have no code.
std::optional<CodecRow> measure_if_codable(const std::string& spec, std::span<const float> values);

nlohmann::json to_json(const CodecRow&);

}  // namespace ranvier::cli
