// Averages by codes whose caller keeps what is held back, as ranvier.hook does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using support::run_ranks;

// Of what has no shorter codes than floats, more slices than are under way at once; under sanitizers, which take a
// minute for these, several.
constexpr std::size_t many_slices = support::sanitized ? 700'000 : 3'000'000;

TEST(CodedAverages, AreTheSameBitsEverywhereAndEachTime) {
  for (const std::string_view spec : {"qsgd:5,block=256+rans", "lossless", "int8:by=all_gather,ef=0"})
    for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{70'000}, many_slices}) {
      std::vector<float> once, again;
      for (auto* const result : {&once, &again})
        run_ranks(3, [&](Communicator& comm) {
          CodedAverages averages(make_codec(spec));
          auto bucket = gradients(comm.rank(), count);
          const auto outcome = averages.average(comm, bucket, {}, 7, 0, {});
          EXPECT_FALSE(outcome.went_plain);
          EXPECT_EQ(outcome.bytes_sent > 0, count > 0);
          expect_equal_everywhere(comm, bucket);
          if (comm.rank() == 1) *result = bucket;
        });
      EXPECT_EQ(once, again) << spec << ' ' << count;
      if (spec != "lossless") continue;
      const auto a = gradients(0, count), b = gradients(1, count), c = gradients(2, count);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(once[i], (a[i] + b[i] + c[i]) * (1.0F / 3));
    }
}

TEST(CodedAverages, WhatTheCallerKeepsIsAllThatWasNotApplied) {
  constexpr Rank world = 3;
  for (const std::string_view spec : {"int2:by=reduce_scatter", "int2:by=all_gather", "hadamard:32+int4+rans"}) {
    std::vector<std::vector<float>> residuals(world);
    std::vector<double> applied(many_slices), given(many_slices);
    run_ranks(world, [&](Communicator& comm) {
      CodedAverages averages(make_codec(spec));
      auto& residual = residuals[static_cast<std::size_t>(comm.rank())];
      residual.resize(many_slices);
      for (unsigned step = 0; step < 3; ++step) {
        auto bucket = gradients(comm.rank(), many_slices, step);
        averages.average(comm, bucket, {.residual = residual}, step, step, {});
        for (std::size_t i = 0; comm.rank() == 0 && i < many_slices; ++i)
          applied[i] += static_cast<double>(bucket[i]) * world;
      }
    });
    for (unsigned step = 0; step < 3; ++step) {
      const auto sum = exact_sum(world, many_slices, step);
      for (std::size_t i = 0; i < many_slices; ++i) given[i] += sum[i];
    }
    for (std::size_t i = 0; i < many_slices; ++i) {
      double held_back = 0;
      for (const auto& residual : residuals) held_back += static_cast<double>(residual[i]);
      ASSERT_NEAR(applied[i] + held_back, given[i], 1e-4) << spec << ' ' << i;
    }
  }
}

// All values of a slice that has no code go plain, and the residual stays; other slices are coded.
TEST(CodedAverages, ASliceWithoutCodeGoesPlainAlone) {
  for (const std::string_view spec : {"sign:by=reduce_scatter", "sign:by=all_gather"})
    run_ranks(2, [&](Communicator& comm) {
      constexpr std::size_t slice = std::size_t{1} << 20, count = 2 * slice;
      CodedAverages averages(make_codec(spec));
      auto bucket = gradients(comm.rank(), count);
      if (comm.rank() == 0) bucket[5] = NAN;
      std::vector<float> residual(count, 0.25F);
      EXPECT_TRUE(averages.average(comm, bucket, {.residual = residual}, 0, 0, {}).went_plain);
      expect_equal_everywhere(comm, bucket);
      const auto a = gradients(0, count), b = gradients(1, count);
      EXPECT_TRUE(std::isnan(bucket[5]));
      for (std::size_t i = 6; i < slice; ++i) {
        ASSERT_FLOAT_EQ(bucket[i], (a[i] + b[i]) * 0.5F);
        ASSERT_NEAR(residual[i], 0.25F, 1e-5);
      }
      EXPECT_TRUE(std::any_of(residual.begin() + slice, residual.end(), [](float left) { return left != 0.25F; }));
      bucket = gradients(comm.rank(), count, 1);
      EXPECT_FALSE(averages.average(comm, bucket, {.residual = residual}, 1, 1, {}).went_plain);
    });
}

// Its memory is the caller's again: nothing is under way in it.
TEST(CodedAverages, AFailureIsThrownOnceNothingIsUnderWay) {
  run_ranks(2,
            [&](Communicator& comm) {
              CodedAverages averages(make_codec("int8:ef=0"));
              try {
                std::vector<float> bucket(comm.rank() == 0 ? many_slices : many_slices / 2, 1.0F);
                averages.average(comm, bucket, {}, 0, 0, {});
                ADD_FAILURE() << "buckets of different sizes were averaged";
              } catch (const Error& error) {
                EXPECT_TRUE(error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::aborted) << error.what();
              }
            },
            {.way = "shm"});
}

}  // namespace
}  // namespace ranvier
