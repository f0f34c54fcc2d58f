// How far ranks may drift apart.
#include "engine/allowance.h"

#include <gtest/gtest.h>

namespace ranvier::engine {
namespace {

TEST(Allowance, IsAShareOfWhatHasBeenDue) {
  Allowance allowance(0.01);
  EXPECT_TRUE(allowance.take(0));
  EXPECT_FALSE(allowance.take(1)) << "nothing was due";
  allowance.due(1000);
  EXPECT_TRUE(allowance.take(4));
  EXPECT_FALSE(allowance.take(7)) << "what is refused costs nothing";
  EXPECT_TRUE(allowance.take(6));
  EXPECT_FALSE(allowance.take(1));
  allowance.due(1000);
  EXPECT_TRUE(allowance.take(10));
}

TEST(Allowance, IsThatOfTheWholePeriodFromItsBeginningOnOnceOneIsKnown) {
  Allowance allowance(0.1);
  allowance.due(1000);
  EXPECT_TRUE(allowance.take(100));
  allowance.renew();
  EXPECT_TRUE(allowance.take(60));
  EXPECT_TRUE(allowance.take(40));
  EXPECT_FALSE(allowance.take(1)) << "what was not taken before is not saved up";
  allowance.due(1500);
  EXPECT_TRUE(allowance.take(50));
  EXPECT_FALSE(allowance.take(1));
}

}  // namespace
}  // namespace ranvier::engine
