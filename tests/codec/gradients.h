// Gradients of the demo models as tests/data/record_gradients.py recorded them, and their quantized symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ranvier::testing {

struct Gradient {
  std::string model;
  std::vector<float> values;
};
std::vector<Gradient> recorded_gradients();

struct Quantized {
  std::string name;  // "cnn, int8"
  std::vector<std::uint8_t> symbols;
};
// int8 and int4 with a maximum a block of 128, plain and behind a Hadamard transform; QSGD with 7 and 1 levels (maximum
// norm) and 7 levels (L2 norm).
std::vector<Quantized> quantized(const Gradient&);

// What no code of single symbols goes below.
double entropy_bytes(const std::vector<std::uint8_t>& symbols);

}  // namespace ranvier::testing
