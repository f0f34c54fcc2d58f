// Against a set of numbers that needs no thought.
#include "transport/number_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ranvier::transport {
namespace {

TEST(NumberRanges, are_the_set_that_was_added_and_removed) {
  std::mt19937 random(7);
  const auto some = [&](std::uint64_t most) { return std::uniform_int_distribution<std::uint64_t>(0, most)(random); };
  NumberRanges ranges;
  std::set<std::uint64_t> numbers;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t begin = some(60);
    const NumberRange range{begin, begin + some(9)};
    if (some(2) > 0) {
      bool is_new = false;
      for (std::uint64_t number = range.begin; number < range.end; ++number) is_new |= numbers.insert(number).second;
      ASSERT_EQ(ranges.add(range), is_new) << step;
    } else {
      for (std::uint64_t number = range.begin; number < range.end; ++number) numbers.erase(number);
      ranges.remove(range);
    }
    std::set<std::uint64_t> held;
    const NumberRange* before = nullptr;
    for (const NumberRange& each : ranges.all()) {
      ASSERT_FALSE(each.empty()) << step;
      ASSERT_TRUE(before == nullptr || before->end < each.begin) << step;
      for (std::uint64_t number = each.begin; number < each.end; ++number) held.insert(number);
      before = &each;
    }
    ASSERT_EQ(held, numbers) << step;
    ASSERT_EQ(ranges.contains(begin), numbers.contains(begin)) << step;
  }
}

}  // namespace
}  // namespace ranvier::transport
