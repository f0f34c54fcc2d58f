#include "codec/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

// A bf16 from 2^110 on: no encoder writes one, and times a symbol it might be infinite.
constexpr std::uint16_t first_wrong_scale = (127 + 110) << 7;

class GridQuantizer final : public Quantizer {
 public:
  GridQuantizer(const kernel::Grid& grid, GridReach reach) : grid_(grid), reach_(reach) {}
  unsigned levels() const override { return 2 * static_cast<unsigned>(grid_.limit) + 1; }
  unsigned zero() const override { return static_cast<unsigned>(grid_.limit); }
  std::size_t side_bytes(std::size_t count) const override { return 2 * ((count + grid_.block - 1) / grid_.block); }

  void quantize(std::span<const float> values, std::uint32_t seed, std::uint8_t* symbols,
                std::byte* side) const override {
    if (reach_ == GridReach::largest)
      return kernel::to_largest_grid(grid_, values.data(), values.size(), side, seed, symbols);
    for (std::size_t begin = 0; begin < values.size(); begin += grid_.block) {
      const std::size_t size = std::min(grid_.block, values.size() - begin);
      const std::uint16_t scale = kernel::grid_scale(reach(values.subspan(begin, size)), grid_.limit);
      std::memcpy(side + begin / grid_.block * 2, &scale, 2);
    }
    kernel::to_grid(grid_, values.data(), values.size(), side, seed, symbols);
  }

  void dequantize(const std::uint8_t* symbols, const std::byte* side, std::span<float> out) const override {
    for (std::size_t at = 0; at < side_bytes(out.size()); at += 2) {
      std::uint16_t scale;
      std::memcpy(&scale, side + at, 2);
      if (scale >= first_wrong_scale)
        throw Error(ErrorKind::mismatch,
                    fmt::format("a code has a scale of bits {:#06x}, which no encoder writes; give "
                                "the same codec to every rank",
                                scale));
    }
    kernel::from_grid(grid_, symbols, out.size(), side, out.data());
  }

 private:
  float reach(std::span<const float> values) const {
    const double squares = kernel::sum_of_squares(values.data(), values.size());
    if (reach_ == GridReach::l2_norm) return static_cast<float>(std::sqrt(squares));
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    return std::min(kernel::largest_magnitude(values.data(), values.size()), static_cast<float>(2.5 * deviation));
  }

  kernel::Grid grid_;
  GridReach reach_;
};

}  // namespace

std::unique_ptr<Quantizer> grid_quantizer(const kernel::Grid& grid, GridReach reach) {
  return std::make_unique<GridQuantizer>(grid, reach);
}

void add_grid(Parameters& parameters, Draft& draft, int limit, std::size_t block, std::string_view rounding) {
  constexpr std::array<std::string_view, 2> roundings{"nearest", "stochastic"}, norms{"max", "l2"};
  const kernel::Grid grid{.block = parameters.block(block),
                          .limit = limit,
                          .stochastic = parameters.choice("rounding", rounding, roundings) == "stochastic"};
  const bool is_max = parameters.choice("norm", "max", norms) == "max";
  draft.quantizer = grid_quantizer(grid, is_max ? GridReach::largest : GridReach::l2_norm);
  draft.biased = draft.biased || !grid.stochastic;
  const auto size = static_cast<double>(grid.block), steps = static_cast<double>(limit);
  if (!is_max && grid.stochastic) draft.variance = std::min(size / (steps * steps), std::sqrt(size) / steps);
}

}  // namespace ranvier
