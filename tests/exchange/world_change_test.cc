// A run that goes on with other ranks than before: what they owe is paid, and ranks that bring nothing fit in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;

constexpr std::size_t rows = 12, columns = 16, bias = 8, count = rows * columns + bias;
const std::vector<Tensor> tensors{{.id = 1, .rows = rows, .columns = columns}, {.id = 2, .columns = bias}};
using Saved = std::vector<std::vector<std::byte>>;  // by rank

// After an odd number of steps, which is what acpsgd's factors take turns by.
Saved saved_by(Rank world, std::string_view spec, unsigned steps) {
  Saved saved(static_cast<std::size_t>(world));
  run_ranks(world, [&](Communicator& comm) {
    const auto exchange = make_exchange(spec, comm);
    std::vector<float> bucket;
    for (unsigned step = 0; step < steps; ++step) {
      bucket = gradients(comm.rank(), count);
      exchange->start({.values = bucket, .tensors = tensors})->wait();
    }
    saved[static_cast<std::size_t>(comm.rank())] = exchange->save({.values = bucket, .tensors = tensors});
  });
  return saved;
}

std::unique_ptr<Exchange> going_on_with(const Saved& saved, std::string_view spec, Communicator& comm) {
  auto exchange = make_exchange(spec, comm);
  std::vector<float> bucket(count);
  if (const auto rank = static_cast<std::size_t>(comm.rank()); rank < saved.size())
    exchange->restore({.values = bucket, .tensors = tensors}, saved[rank]);
  return exchange;
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

class WorldChange : public testing::TestWithParam<std::pair<Rank, Rank>> {
 protected:
  const Rank before_ = GetParam().first, after_ = GetParam().second;
};
INSTANTIATE_TEST_SUITE_P(Ranks, WorldChange, testing::Values(std::pair(3, 2), std::pair(2, 3)), [](const auto& worlds) {
  return worlds.param.first < worlds.param.second ? "more" : "fewer";
});

// With gradients of zero, all that comes out is what was owed by those who are still there.
TEST_P(WorldChange, WhatIsOwedComesOutAndNoMore) {
  for (const std::string_view spec :
       {"sign", "int2", "topk:0.05,by=reduce_scatter+int8", "topk:0.05,by=all_gather+int8", "randk:0.1+bf16", "thc:8",
        "switchml", "powersgd:1", "acpsgd:1"}) {
    const Saved saved = saved_by(before_, spec, 5);
    run_ranks(after_, [&](Communicator& comm) {
      std::vector<double> owed(count);
      for (Rank rank = 0; rank < std::min(before_, after_); ++rank) {
        const auto residual = owed_in(saved[static_cast<std::size_t>(rank)]);
        for (std::size_t i = 0; i < count; ++i) owed[i] += static_cast<double>(residual[i]);
      }
      const double whole = norm_of(owed);
      EXPECT_GT(whole, 0.1) << spec;
      const auto exchange = going_on_with(saved, spec, comm);
      for (int step = 0; step < 200; ++step) {
        std::vector<float> bucket(count);
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        expect_equal_everywhere(comm, bucket);
        for (std::size_t i = 0; i < count; ++i) owed[i] -= static_cast<double>(bucket[i]) * after_;
      }
      EXPECT_LT(norm_of(owed), 0.05 * whole) << spec;
    });
  }
}

// EF21: an average of estimates is that of those who made them. Constant gradients show what is left of the others'.
TEST_P(WorldChange, ChangesEndInTheAverageOfThoseWhoAreThere) {
  for (const std::string_view spec : {"delta+topk:0.1+int8", "delta+randk:0.2+bf16", "int4:ef=21,by=all_gather"}) {
    const Saved saved = saved_by(before_, spec, 40);
    run_ranks(after_, [&](Communicator& comm) {
      const auto exchange = going_on_with(saved, spec, comm);
      std::vector<float> bucket;
      for (int step = 0; step < 120; ++step) {
        bucket = gradients(comm.rank(), count);
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        expect_equal_everywhere(comm, bucket);
      }
      std::vector<double> wrong = exact_sum(after_, count);
      const double whole = norm_of(wrong) / after_;
      for (std::size_t i = 0; i < count; ++i) wrong[i] = wrong[i] / after_ - static_cast<double>(bucket[i]);
      EXPECT_LT(norm_of(wrong), 0.02 * whole) << spec;
    });
  }
}

// Also of what is too small for factors, of which they hold nothing back.
TEST(CodecChange, FactorsPayWhatACodecOfValuesOwed) {
  const Saved saved = saved_by(2, "topk:0.05", 5);
  run_ranks(2, [&](Communicator& comm) {
    const auto exchange = going_on_with(saved, "powersgd:1", comm);
    const auto a = owed_in(saved[0]), b = owed_in(saved[1]);
    for (const float share : {1.0F, 0.0F}) {
      std::vector<float> bucket(count, 3);
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      for (std::size_t i = count - bias; i < count; ++i) ASSERT_NEAR(bucket[i], 3 + share * (a[i] + b[i]) / 2, 1e-5);
    }
  });
}

// Of codecs that have no residual that it could be part of: in other buckets, too.
TEST(CodecChange, WhoHoldsNothingBackPaysOnce) {
  const Saved saved = saved_by(2, "topk:0.05", 5);
  for (const std::string_view spec : {"none", "bf16", "qsgd:100", "delta+topk:1"})
    for (const bool apart : {false, true})
      run_ranks(2, [&](Communicator& comm) {
        auto exchange = going_on_with(saved, spec, comm);
        const auto a = owed_in(saved[0]), b = owed_in(saved[1]);
        std::vector<float> bucket(count, 3);
        const auto start = [&] {
          if (!apart) return exchange->start({.values = bucket, .tensors = tensors})->wait();
          std::span<float> left = bucket;
          for (const Tensor& tensor : tensors) {
            exchange->start({.values = left.first(tensor.size()), .tensors = std::span(&tensor, 1)})->wait();
            left = left.subspan(tensor.size());
          }
        };
        // A step that is not finite on some rank pays on none, and a checkpoint behind it has all that is owed.
        bucket.assign(count, comm.rank() == 1 ? INFINITY : 3.0F);
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        const auto again = exchange->save({.values = bucket, .tensors = tensors});
        exchange = make_exchange(spec, comm);
        exchange->restore({.values = bucket, .tensors = tensors}, again);
        for (const float share : {1.0F, 0.0F}) {
          bucket.assign(count, 3);
          start();
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_NEAR(bucket[i], 3 + share * (a[i] + b[i]) / 2, spec == "none" ? 1e-5 : 0.3) << spec;
        }
        EXPECT_EQ(exchange->state_bytes() == 0, spec != "delta+topk:1") << spec;
        // One that owes nothing any more, beside one that does: their messages are of the same numbers.
        bucket.assign(count, 3);
        const auto kept = exchange->save({.values = bucket, .tensors = tensors});
        exchange = make_exchange(spec, comm);
        exchange->restore({.values = bucket, .tensors = tensors}, kept);
        start();
      });
}

// As a difference, what is owed would be paid again at every step.
TEST(CodecChange, WhatACodecOfValuesOwedChangesPayOnce) {
  const Saved saved = saved_by(2, "topk:0.05", 5);
  run_ranks(2, [&](Communicator& comm) {
    const auto exchange = going_on_with(saved, "delta+topk:1", comm);
    const auto a = owed_in(saved[0]), b = owed_in(saved[1]);
    // No step is taken by what is not finite, so that pays nothing.
    std::vector<float> overflown(count, comm.rank() == 0 ? INFINITY : 3.0F);
    exchange->start({.values = overflown, .tensors = tensors})->wait();
    for (const float share : {1.0F, 0.0F}) {
      std::vector<float> bucket(count, 3);
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(bucket[i], 3 + share * (a[i] + b[i]) / 2, 1e-5);
    }
  });
}

// By a step that goes plain too, if it is taken.
TEST(CodecChange, WhatIsOwedIsPaidByWhatNoCodeHolds) {
  const Saved saved = saved_by(2, "topk:0.05", 5);
  run_ranks(2, [&](Communicator& comm) {
    const auto exchange = going_on_with(saved, "delta+topk:1", comm);
    const auto a = owed_in(saved[0]), b = owed_in(saved[1]);
    for (const float share : {1.0F, 0.0F}) {
      std::vector<float> bucket(count, 3);
      if (share == 1) bucket[0] = 1e16F;
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      for (std::size_t i = 1; i < count; ++i) ASSERT_NEAR(bucket[i], 3 + share * (a[i] + b[i]) / 2, 1e-5);
    }
    EXPECT_EQ(exchange->plain_buckets(), 1U);
  });
}

}  // namespace
}  // namespace ranvier
