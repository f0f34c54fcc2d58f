#include "base/cpu_set.h"

#include <gtest/gtest.h>

#include <string>

namespace ranvier {
namespace {

CpuSet set_of(const std::string& text) { return CpuSet::parse(text).value(); }

TEST(CpuSet, TextAndBack) {
  for (const std::string text : {"", "0", "0-3", "0-3,8", "1,3,5-7,1023"}) EXPECT_EQ(set_of(text).text(), text);
  EXPECT_EQ(set_of("3,1-2,2").text(), "1-3");
  EXPECT_EQ(set_of("0-3,8").count(), 5U);
  for (const char* const bad : {"x", "1-", "-1", "3-1", "1024", "0-1024", "1 2", ",", "1,,2", "0x1", "99999999999"})
    EXPECT_FALSE(CpuSet::parse(bad)) << bad;
  EXPECT_GT(CpuSet::own().count(), 0U);
  EXPECT_EQ(set_of(CpuSet::own().text()).count(), CpuSet::own().count());
}

TEST(SharedCores, AreFewerThanRanksOrNot) {
  SharedCores bound, confined;
  for (const char* const own : {"0", "1", "2-3"}) bound.add_rank(set_of(own));
  EXPECT_EQ(bound.ranks_per_core(), 1) << "each has its own";
  for (int rank = 0; rank < 3; ++rank) confined.add_rank(set_of("4-5"));
  EXPECT_EQ(confined.ranks_per_core(), 2);
  for (int rank = 3; rank < 16; ++rank) confined.add_rank(set_of("4-5"));
  EXPECT_EQ(confined.ranks_per_core(), 8);
}

}  // namespace
}  // namespace ranvier
