#include "codec/gradients.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>

namespace ranvier::testing {
namespace {

constexpr std::size_t recorded_values = 65536;
constexpr std::size_t block_values = 128;

enum class Norm { maximum, l2 };

double norm_of(std::span<const float> block, Norm norm) {
  double maximum = 0, squares = 0;
  for (const float value : block) {
    maximum = std::max(maximum, std::abs(static_cast<double>(value)));
    squares += static_cast<double>(value) * value;
  }
  return norm == Norm::maximum ? maximum : std::sqrt(squares);
}

// Symbols 0 … 2 * levels: value / norm * levels, rounded to nearest or, for QSGD, up with the fraction's probability.
std::vector<std::uint8_t> quantize(std::span<const float> values, int levels, Norm norm, bool stochastic) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> fraction;
  std::vector<std::uint8_t> symbols;
  for (std::size_t first = 0; first < values.size(); first += block_values) {
    const auto block = values.subspan(first, std::min(block_values, values.size() - first));
    const double scale = norm_of(block, norm);
    for (const float value : block) {
      const double level = scale > 0 ? value / scale * levels : 0;
      const double rounded = std::floor(level + (stochastic ? fraction(random) : 0.5));
      symbols.push_back(static_cast<std::uint8_t>(rounded + levels));
    }
  }
  return symbols;
}

// The orthonormal Hadamard transform of blocks with random signs, which makes any values look normal.
std::vector<float> rotated(std::vector<float> values) {
  std::mt19937 random(2);
  for (float& value : values) value = random() % 2 ? value : -value;
  for (std::size_t half = 1; half < block_values; half *= 2)
    for (std::size_t first = 0; first < values.size(); first += 2 * half)
      for (std::size_t i = first; i < first + half; ++i) {
        const float a = values[i], b = values[i + half];
        values[i] = (a + b) * std::sqrt(0.5F);
        values[i + half] = (a - b) * std::sqrt(0.5F);
      }
  return values;
}

}  // namespace

std::vector<Gradient> recorded_gradients() {
  std::vector<Gradient> gradients;
  for (const char* model : {"cnn", "mlp"}) {
    Gradient gradient{model, std::vector<float>(recorded_values)};
    const std::string path = std::string(RANVIER_TEST_DATA "/") + model + "_gradient.f32.gz";
    const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), gzclose);
    constexpr unsigned bytes = recorded_values * sizeof(float);
    if (!file || gzread(file.get(), gradient.values.data(), bytes) != static_cast<int>(bytes))
      throw std::runtime_error("no gradient in " + path);
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

std::vector<Quantized> quantized(const Gradient& gradient) {
  const auto& [model, values] = gradient;
  return {{model + ", int8", quantize(values, 127, Norm::maximum, false)},
          {model + ", int4", quantize(values, 7, Norm::maximum, false)},
          {model + ", Hadamard and int8", quantize(rotated(values), 127, Norm::maximum, false)},
          {model + ", Hadamard and int4", quantize(rotated(values), 7, Norm::maximum, false)},
          {model + ", QSGD of 7 levels, maximum", quantize(values, 7, Norm::maximum, true)},
          {model + ", QSGD of 7 levels, L2", quantize(values, 7, Norm::l2, true)},
          {model + ", ternary", quantize(values, 1, Norm::maximum, true)}};
}

double entropy_bytes(const std::vector<std::uint8_t>& symbols) {
  std::array<double, 256> counts{};
  for (const std::uint8_t symbol : symbols) ++counts[symbol];
  double bits = 0;
  for (const double count : counts)
    if (count > 0) bits += count * std::log2(static_cast<double>(symbols.size()) / count);
  return bits / 8;
}

}  // namespace ranvier::testing
