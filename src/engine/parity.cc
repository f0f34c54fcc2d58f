#include "engine/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ranvier::engine {
namespace {

constexpr std::size_t piece_bytes = PartialMessages::piece_bytes;
constexpr std::size_t largest_side = 32;
constexpr std::size_t largest_grid = largest_side * largest_side;

// A row or a column.
struct Line {
  std::size_t first = 0;   // piece of data
  std::size_t stride = 1;  // to the next
  std::size_t count = 0;
  std::size_t parity = 0;  // piece
};

std::size_t side_of(std::size_t pieces) {
  auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(pieces)));
  while (side * side < pieces) ++side;
  return side;
}

template <class Body>
void each_line(std::size_t pieces, const Body& body) {
  std::size_t parity = pieces;
  for (std::size_t grid = 0; grid < pieces; grid += largest_grid) {
    const std::size_t size = std::min(largest_grid, pieces - grid);
    const std::size_t columns = side_of(size);
    for (std::size_t row = 0; row < size; row += columns)
      body(Line{grid + row, 1, std::min(columns, size - row), parity++});
    for (std::size_t column = 0; column < columns; ++column)
      body(Line{grid + column, columns, (size - column + columns - 1) / columns, parity++});
  }
}

std::byte* piece_of(Bytes message, std::size_t piece) { return message.data() + piece * piece_bytes; }

// They never overlap; without being told, compilers go byte by byte.
void add_to(std::byte* __restrict to, const std::byte* __restrict from) {
  for (std::size_t i = 0; i < piece_bytes; ++i) to[i] ^= from[i];
}

// give(line, piece) for each piece of data that a line has back; how many are missing at the end.
template <class Give>
std::size_t peel(std::span<std::uint8_t> arrived, std::size_t pieces, const Give& give) {
  for (bool any = true; any;) {
    any = false;
    each_line(pieces, [&](const Line& line) {
      if (arrived[line.parity] == 0) return;
      std::size_t missing = 0, which = 0;
      for (std::size_t i = 0; i < line.count; ++i) {
        const std::size_t piece = line.first + i * line.stride;
        if (arrived[piece] != 0) continue;
        ++missing;
        which = piece;
      }
      if (missing != 1) return;
      give(line, which);
      arrived[which] = 1;
      any = true;
    });
  }
  return static_cast<std::size_t>(std::ranges::count(arrived.first(pieces), std::uint8_t{0}));
}

}  // namespace

std::size_t parity_pieces(std::size_t pieces) {
  std::size_t count = 0;
  each_line(pieces, [&](const Line&) { ++count; });
  return count;
}

void clear_parities(Bytes message, std::size_t pieces) {
  std::ranges::fill(message.subspan(pieces * piece_bytes, parity_pieces(pieces) * piece_bytes), std::byte{0});
}

void add_to_parities(Bytes message, std::size_t pieces, std::size_t piece) {
  const std::size_t grid = piece / largest_grid * largest_grid, size = std::min(largest_grid, pieces - grid);
  const std::size_t columns = side_of(size), rows = (size + columns - 1) / columns;
  const std::size_t first = pieces + grid / largest_grid * 2 * largest_side;  // all grids before it are full
  const std::byte* const from = piece_of(message, piece);
  add_to(piece_of(message, first + (piece - grid) / columns), from);
  add_to(piece_of(message, first + rows + (piece - grid) % columns), from);
}

std::size_t find_recoverable(std::span<std::uint8_t> arrived, std::size_t pieces) {
  return peel(arrived, pieces, [](const Line&, std::size_t) {});
}

void recover(Bytes message, std::span<std::uint8_t> arrived, std::size_t pieces) {
  peel(arrived, pieces, [&](const Line& line, std::size_t lost) {
    std::byte* const to = piece_of(message, lost);
    std::memcpy(to, piece_of(message, line.parity), piece_bytes);
    for (std::size_t i = 0; i < line.count; ++i)
      if (const std::size_t piece = line.first + i * line.stride; piece != lost) add_to(to, piece_of(message, piece));
  });
}

}  // namespace ranvier::engine
