#include "codec/gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>

namespace ranvier::testing {
namespace {

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

}  // namespace

std::vector<Gradient> recorded_gradients() {
  std::vector<Gradient> gradients;
  for (const char* model : {"cnn", "mlp"}) {
    std::ifstream file(std::string(RANVIER_TEST_DATA "/") + model + "_gradient.f32", std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    Gradient gradient{model, std::vector<float>(bytes.size() / sizeof(float))};
    std::memcpy(gradient.values.data(), bytes.data(), gradient.values.size() * sizeof(float));
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

std::vector<Quantized> quantized(const Gradient& gradient) {
  const auto& [model, values] = gradient;
  return {{model + ", int8", quantize(values, 127, Norm::maximum, false)},
          {model + ", int4", quantize(values, 7, Norm::maximum, false)},
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
