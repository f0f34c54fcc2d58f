// Package-merge: Larmore and Hirschberg, "A fast algorithm for optimal length-limited Huffman codes", Journal of the
// ACM 1990. Every symbol is a coin of each value 2^-1 … 2^-most_bits; buying n - 1 units of value as cheaply as
// possible, a symbol costing its count each time, buys symbol s as often as its code has bits. Level by level from the
// smallest coins, neighbours in the order of cost become packages of the next value, and packages and coins are merged.
// Here only the kinds (coin or package) are kept for the way back: O(n * most_bits) time, one bit's worth of memory an
// item.
#include "codec/code_lengths.h"

#include <algorithm>
#include <vector>

namespace ranvier {
namespace {

constexpr int deepest = 16;

struct Coin {
  std::uint64_t cost;
  std::uint8_t symbol;
};

// What one level holds: the costs of its items in increasing order, and which of them are coins.
struct Level {
  std::array<std::uint64_t, 512> cost;
  std::array<bool, 512> is_coin;
  std::size_t size = 0;

  void push(std::uint64_t item, bool coin) {
    cost[size] = item;
    is_coin[size++] = coin;
  }
};

void merge(const std::vector<Coin>& coins, const Level& below, Level& level) {
  const std::size_t packages = below.size / 2;
  const auto package_cost = [&](std::size_t i) { return below.cost[2 * i] + below.cost[2 * i + 1]; };
  std::size_t coin = 0, package = 0;
  while (coin < coins.size() || package < packages)
    if (package == packages || (coin < coins.size() && coins[coin].cost <= package_cost(package)))
      level.push(coins[coin++].cost, true);
    else
      level.push(package_cost(package++), false);
}

}  // namespace

NumberTable code_lengths(const Histogram& histogram, int most_bits) {
  std::vector<Coin> coins;
  coins.reserve(histogram.size());
  for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol)
    if (histogram[symbol] > 0) coins.push_back({histogram[symbol], static_cast<std::uint8_t>(symbol)});
  std::ranges::sort(
      coins, [](const Coin& a, const Coin& b) { return a.cost != b.cost ? a.cost < b.cost : a.symbol < b.symbol; });

  std::array<Level, deepest> levels;
  for (const Coin& coin : coins) levels[0].push(coin.cost, true);
  for (int i = 1; i < most_bits; ++i) merge(coins, levels[i - 1], levels[i]);

  // The cheapest 2n - 2 items of the largest coins; of each level below, the items in the packages bought above.
  NumberTable lengths{};
  std::size_t bought = 2 * coins.size() - 2;
  for (int i = most_bits - 1; i >= 0 && bought > 0; --i) {
    const auto kinds = levels[i].is_coin.begin();
    const auto bought_coins =
        static_cast<std::size_t>(std::count(kinds, kinds + static_cast<std::ptrdiff_t>(bought), true));
    for (std::size_t coin = 0; coin < bought_coins; ++coin) ++lengths[coins[coin].symbol];
    bought = 2 * (bought - bought_coins);
  }
  return lengths;
}

}  // namespace ranvier
