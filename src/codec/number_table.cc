#include "codec/number_table.h"

#include <algorithm>

#include "codec/integer_code.h"

namespace ranvier {
namespace {

constexpr int order_bits = 4;
constexpr int most_order = 15;
constexpr int symbol_bits = 8;

// 0, -1, 1, -2, … -> 0, 1, 2, 3, …
std::uint32_t folded(int step) { return static_cast<std::uint32_t>(step < 0 ? -2 * step - 1 : 2 * step); }
int unfolded(std::uint32_t number) {
  return number % 2 ? -static_cast<int>(number / 2) - 1 : static_cast<int>(number / 2);
}

// The steps of a table between its first and last entry that is not zero.
struct Steps {
  explicit Steps(const NumberTable& table) {
    const auto used = [](std::uint16_t entry) { return entry > 0; };
    first = static_cast<std::size_t>(std::ranges::find_if(table, used) - table.begin());
    last = static_cast<std::size_t>(std::find_if(table.rbegin(), table.rend(), used).base() - table.begin()) - 1;
    int before = 0;
    for (std::size_t symbol = first; symbol <= last; ++symbol) {
      number[symbol] = folded(table[symbol] - before);
      before = table[symbol];
    }
    bits = bits_of(order);
    for (int next = 1; next <= most_order; ++next)
      if (const std::size_t fewer = bits_of(next); fewer < bits) {
        bits = fewer;
        order = next;
      }
  }

  std::size_t bits_of(int with_order) const {
    std::size_t sum = 0;
    for (std::size_t symbol = first; symbol <= last; ++symbol)
      sum += static_cast<std::size_t>(ExpGolomb{with_order}.bits(number[symbol]));
    return sum;
  }

  std::size_t first, last;
  std::array<std::uint32_t, 256> number{};
  int order = 0;
  std::size_t bits = 0;
};

}  // namespace

void put_table(BitWriter& out, const NumberTable& table) {
  const Steps steps(table);
  out.put(steps.first, symbol_bits);
  out.put(steps.last, symbol_bits);
  out.put(static_cast<std::uint64_t>(steps.order), order_bits);
  for (std::size_t symbol = steps.first; symbol <= steps.last; ++symbol)
    ExpGolomb{steps.order}.put(out, steps.number[symbol]);
}

std::size_t table_bits(const NumberTable& table) { return 2 * symbol_bits + order_bits + Steps(table).bits; }

bool take_table(BitReader& in, std::uint32_t most, NumberTable& table) {
  const auto first = static_cast<std::size_t>(in.take(symbol_bits));
  const auto last = static_cast<std::size_t>(in.take(symbol_bits));
  const ExpGolomb code{static_cast<int>(in.take(order_bits))};
  table.fill(0);
  std::int64_t number = 0;
  for (std::size_t symbol = first; symbol <= last; ++symbol) {
    const std::uint32_t step = code.take(in);
    if (step > 2 * most) return false;
    number += unfolded(step);
    if (number < 0 || number > most) return false;
    table[symbol] = static_cast<std::uint16_t>(number);
  }
  return !in.overrun();
}

}  // namespace ranvier
