#include "codec/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

using std::chrono::steady_clock;

constexpr double infinity = std::numeric_limits<double>::infinity();

// The median of some runs, after one that warms up caches and memory.
template <class Body>
double seconds_of(const Body& body) {
  constexpr std::size_t most_runs = 31;
  constexpr std::chrono::duration<double> long_enough(0.15);
  body();
  std::vector<double> times;
  const auto started = steady_clock::now();
  do {
    const auto before = steady_clock::now();
    body();
    times.push_back(std::chrono::duration<double>(steady_clock::now() - before).count());
  } while (times.size() < most_runs && (times.size() < 3 || steady_clock::now() - started < long_enough));
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

struct Coded {
  std::size_t bytes = 0;
  std::vector<float> decoded;
  CodecSpeed speed;
};

// Behind what warms up.
constexpr CodecKey later{.step = 1'000'000'000};

// The first stages of a spec may be none: what the whole says of error feedback stands behind its last stage.
bool is_spec(const std::string& spec) {
  try {
    return make_codec(spec) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

bool has_code(const std::string& spec, std::span<const float> values) {
  const auto codec = make_codec(spec);
  std::vector<std::byte> memory(codec->max_bytes(values.size()));
  return codec->encode(values, {}, memory, later) > 0;
}

Coded code(const std::string& spec, std::span<const float> values) {
  const auto codec = make_codec(spec);
  std::vector<std::byte> memory(codec->max_bytes(values.size()));
  Coded result{.bytes = 0, .decoded = std::vector<float>(values.size()), .speed = {.spec = spec}};
  const double gigabytes = static_cast<double>(values.size_bytes()) / 1e9;
  result.speed.encode_gbps = gigabytes / seconds_of([&] { result.bytes = codec->encode(values, {}, memory, later); });
  if (result.bytes == 0)
    throw Error(
        ErrorKind::config,
        fmt::format("'{}' has no code for these values: one is NaN, infinite or beyond 2^50, or a coefficient of "
                    "them is; 'lossless' codes those too",
                    spec));
  const ConstBytes view = std::span(memory).first(result.bytes);
  result.speed.decode_gbps = gigabytes / seconds_of([&] { codec->decode(view, result.decoded, Combine::replace); });
  return result;
}

}  // namespace

CodecRow measure_codec(const std::string& spec, std::span<const float> values) {
  const Coded whole = code(spec, values);
  // Norms are of what is finite on both sides: NaN and infinity that come back are no error, and have no direction.
  double squares = 0, error_squares = 0, decoded_squares = 0, products = 0, largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]), decoded = static_cast<double>(whole.decoded[i]);
    if (std::isfinite(value) && std::isfinite(decoded)) {
      squares += value * value;
      decoded_squares += decoded * decoded;
      products += value * decoded;
      error_squares += (value - decoded) * (value - decoded);
      largest = std::max(largest, std::fabs(value - decoded));
    } else if (!(value == decoded || (std::isnan(value) && std::isnan(decoded)))) {
      error_squares = largest = infinity;
    }
  }
  const double both = std::sqrt(squares) * std::sqrt(decoded_squares);
  CodecRow row{.spec = spec,
               .bits_per_value = 8 * static_cast<double>(whole.bytes) / static_cast<double>(values.size()),
               .relative_error = error_squares > 0 ? std::sqrt(error_squares / squares) : 0,
               .cosine = both > 0                     ? products / both
                         : squares == decoded_squares ? 1.0
                                                      : 0.0,
               .largest_error = largest,
               .encode_gbps = whole.speed.encode_gbps,
               .decode_gbps = whole.speed.decode_gbps,
               .stages = {}};
  const std::string stages(spec_of(spec));
  for (auto end = stages.find('+'); end != std::string::npos; end = stages.find('+', end + 1))
    if (const auto first = stages.substr(0, end); is_spec(first)) row.stages.push_back(code(first, values).speed);
  if (!row.stages.empty()) row.stages.push_back({stages, whole.speed.encode_gbps, whole.speed.decode_gbps});
  return row;
}

std::optional<CodecRow> measure_if_codable(const std::string& spec, std::span<const float> values) {
  return has_code(spec, values) ? std::optional(measure_codec(spec, values)) : std::nullopt;
}

nlohmann::json to_json(const CodecRow& row) {
  nlohmann::json stages = nlohmann::json::array();
  for (const CodecSpeed& stage : row.stages)
    stages.push_back({{"spec", stage.spec}, {"encode_gbps", stage.encode_gbps}, {"decode_gbps", stage.decode_gbps}});
  return {{"spec", row.spec},
          {"bits_per_value", row.bits_per_value},
          {"ratio", 32 / row.bits_per_value},
          {"relative_error", row.relative_error},
          {"cosine", row.cosine},
          {"largest_error", row.largest_error},
          {"encode_gbps", row.encode_gbps},
          {"decode_gbps", row.decode_gbps},
          {"stages", std::move(stages)}};
}

}  // namespace ranvier::cli
