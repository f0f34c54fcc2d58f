#include "integrations/trainer/bucket_priority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ranvier::trainer {
namespace {

std::vector<int> priorities(std::size_t count) {
  std::vector<int> all;
  for (std::size_t number = 0; number < count; ++number) all.push_back(bucket_priority(number, count));
  return all;
}

TEST(BucketPriority, IsHigherTheLaterBackwardCompletesTheBucket) {
  using testing::ElementsAre;
  EXPECT_THAT(priorities(1), ElementsAre(0));
  EXPECT_THAT(priorities(2), ElementsAre(0, 3));
  EXPECT_THAT(priorities(4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(priorities(7), ElementsAre(0, 0, 0, 0, 1, 2, 3));
}

}  // namespace
}  // namespace ranvier::trainer
