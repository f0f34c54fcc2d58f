#include "transport/grpc/spare_vectors.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace ranvier::transport {
namespace {

TEST(SpareVectors, GoFromCallToCall) {
  SpareVectors vectors(1000);
  const float* const first = vectors.take()->data();
  for (int call = 0; call < 100; ++call) {
    const auto vector = vectors.take();
    EXPECT_EQ(vector->size(), 1000U);
    EXPECT_EQ(vector->data(), first);
  }
}

TEST(SpareVectors, AreNobodyElsesWhileSomebodyHoldsThem) {
  SpareVectors vectors(1);
  for (int time = 0; time < 2; ++time) {  // the second time there are spare ones, and not enough
    std::vector<std::shared_ptr<std::vector<float>>> held;
    std::set<const float*> places;
    for (std::size_t i = 0; i < 2 * SpareVectors::most_spare; ++i)
      places.insert(held.emplace_back(vectors.take())->data());
    EXPECT_EQ(places.size(), held.size());
  }
}

TEST(SpareVectors, MayBeHeldLongerThanTheirSource) {
  std::shared_ptr<std::vector<float>> last;
  {
    SpareVectors vectors(3);
    vectors.take();
    last = vectors.take();
  }
  last->assign(3, 1.5F);
}

TEST(SpareVectors, AreTakenAndGivenBackOnAnyThread) {
  SpareVectors vectors(100);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int call = 0; call < 1000; ++call) {
        const auto vector = vectors.take();
        vector->assign(100, static_cast<float>(thread));
        EXPECT_EQ(vector->back(), static_cast<float>(thread));
      }
    });
}

}  // namespace
}  // namespace ranvier::transport
