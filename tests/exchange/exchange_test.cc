#include "ranvier/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;
using testing::HasSubstr;

constexpr std::size_t odd_size = 1237;

// Values that differ by rank and element, of both signs and several magnitudes.
float value(Rank rank, std::size_t i) {
  return std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) * std::exp2(static_cast<float>(i % 9) - 4);
}

std::vector<float> varied_gradients(Rank rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
  return values;
}

double exact_average(Rank world, std::size_t i) {
  double sum = 0;
  for (Rank rank = 0; rank < world; ++rank) sum += static_cast<double>(value(rank, i));
  return sum / world;
}

// The largest magnitude that a rank contributes: what the rounding of a sum is relative to.
double scale(Rank world, std::size_t i) {
  double sum = 0;
  for (Rank rank = 0; rank < world; ++rank) sum += std::abs(static_cast<double>(value(rank, i)));
  return sum;
}

// Integers on a grid of 1/1024: codes whose sum is exact, and which must not be divided while they are integers.
class FixedPoint final : public Codec {
 public:
  std::string_view spec() const override { return "fixed"; }
  std::size_t max_bytes(std::size_t count) const override { return count * 4; }
  std::size_t encode(std::span<const float> values, const CodecState&, Bytes out, const CodecKey&) const override {
    auto* codes = reinterpret_cast<std::int32_t*>(out.data());
    for (std::size_t i = 0; i < values.size(); ++i) codes[i] = static_cast<std::int32_t>(std::lround(values[i] * 1024));
    return values.size() * 4;
  }
  void decode(ConstBytes code, std::span<float> out, Combine) const override {
    const auto* codes = reinterpret_cast<const std::int32_t*>(code.data());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(codes[i]) / 1024;
  }
  std::optional<DType> summable_as() const override { return DType::i32; }
};

class NotSummable final : public Codec {
 public:
  std::string_view spec() const override { return "huffman"; }
  std::size_t max_bytes(std::size_t) const override { return 0; }
  std::size_t encode(std::span<const float>, const CodecState&, Bytes, const CodecKey&) const override { return 0; }
  void decode(ConstBytes, std::span<float>, Combine) const override {}
};

TEST(Exchange, DenseGivesTheAverageOnEveryRank) {
  for (const Rank world : {1, 2, 3, 4})
    run_ranks(world, [&](Communicator& comm) {
      auto bucket = varied_gradients(comm.rank(), odd_size);
      const auto exchange = make_exchange("none", comm);
      exchange->start(bucket)->wait();
      for (std::size_t i = 0; i < bucket.size(); ++i)
        ASSERT_NEAR(bucket[i], exact_average(world, i), scale(world, i) * 1e-6) << "element " << i;
      expect_equal_everywhere(comm, bucket);
    });
}

TEST(Exchange, Bf16GivesTheAverageWithinItsRounding) {
  for (const Rank world : {1, 2, 3, 4})
    run_ranks(world, [&](Communicator& comm) {
      auto bucket = varied_gradients(comm.rank(), odd_size);
      const auto exchange = make_exchange("bf16", comm);
      exchange->start(bucket)->wait();
      // Each of the world's values and of its world - 1 partial sums is rounded by at most 2^-8 of its size, which is
      // the scale at most; the second order is in the 1.01.
      for (std::size_t i = 0; i < bucket.size(); ++i)
        ASSERT_NEAR(bucket[i], exact_average(world, i), scale(world, i) / 256 * 1.01) << "element " << i;
      expect_equal_everywhere(comm, bucket);
    });
}

TEST(Exchange, Bf16CarriesWhatIsNotFinite) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<float> bucket(odd_size, 1.0F);
    if (comm.rank() == 1) bucket[7] = NAN;
    if (comm.rank() == 2) bucket[odd_size - 1] = -INFINITY;
    make_exchange("bf16", comm)->start(bucket)->wait();
    EXPECT_TRUE(std::isnan(bucket[7]));
    EXPECT_EQ(bucket[odd_size - 1], -INFINITY);
    EXPECT_EQ(bucket[8], 1.0F);
  });
}

TEST(Exchange, Fp16GivesTheAverageWithinItsRounding) {
  for (const Rank world : {1, 2, 3, 4})
    run_ranks(world, [&](Communicator& comm) {
      auto bucket = varied_gradients(comm.rank(), odd_size);
      make_exchange("fp16", comm)->start(bucket)->wait();
      // As bf16, with 2^-11; and 2^-25 where values and sums are below 2^-14, of a share of a fourth.
      for (std::size_t i = 0; i < bucket.size(); ++i)
        ASSERT_NEAR(bucket[i], exact_average(world, i), scale(world, i) / 2048 * 1.01 + 7 * 0x1p-25) << "element " << i;
      expect_equal_everywhere(comm, bucket);
    });
}

// The sum of four times 30000, and of three on the way to it, is beyond 65504, where f16 ends.
TEST(Exchange, Fp16HoldsAveragesWhoseSumsItDoesNot) {
  for (const std::string_view algorithm : {"ring", "direct"})
    for (const Rank world : {2, 3, 4, 7}) {
      support::ClusterOptions options;
      options.communicator.algorithm = algorithm;
      const auto body = [](Communicator& comm) {
        std::vector<float> bucket(odd_size, 30000);
        bucket[1] = -65504;
        bucket[2] = comm.rank() == 0 ? 100'000.0F : 0;
        bucket[3] = comm.rank() == 0 ? INFINITY : 0;
        make_exchange("fp16", comm)->start(bucket)->wait();
        for (std::size_t i = 4; i < bucket.size(); ++i) ASSERT_NEAR(bucket[i], 30000, 30000 * 0x1p-9);
        EXPECT_NEAR(bucket[1], -65504, 65504 * 0x1p-9);
        EXPECT_NEAR(bucket[2], 100'000.0 / comm.world(), 1e5 * 0x1p-9);
        EXPECT_EQ(bucket[3], INFINITY);
        expect_equal_everywhere(comm, bucket);
      };
      support::run_ranks(world, body, options);
    }
}

TEST(Exchange, Bf16SendsHalfTheBytes) {
  support::ClusterOptions options;
  options.communicator.algorithm = "ring";  // auto may take another algorithm for vectors of half the size
  const auto body = [](Communicator& comm) {
    auto bucket = varied_gradients(comm.rank(), 1 << 16);
    const auto sent_by = [&](std::string_view spec) {
      const auto exchange = make_exchange(spec, comm);
      const auto before = comm.traffic().bytes_sent;
      exchange->start(bucket)->wait();
      return comm.traffic().bytes_sent - before;
    };
    const auto dense = sent_by("none");
    ASSERT_GT(dense, 0U);
    ASSERT_EQ(sent_by("bf16") * 2, dense);
  };
  for (const Rank world : {2, 4}) support::run_ranks(world, body, options);
}

TEST(Exchange, IntegerCodesAreDividedAsFloats) {
  run_ranks(3, [](Communicator& comm) {
    std::vector<float> bucket{static_cast<float>(comm.rank()) / 1024, 1.0F, -0.5F};  // (0 + 1 + 2) / 1024 / 3
    summable_exchange(comm, std::make_unique<FixedPoint>())->start(bucket)->wait();
    EXPECT_FLOAT_EQ(bucket[0], 1.0F / 1024);
    EXPECT_FLOAT_EQ(bucket[1], 1.0F);
    EXPECT_FLOAT_EQ(bucket[2], -0.5F);
  });
}

TEST(Exchange, ManyBucketsAreUnderWayAtOnceAndAllHoldTheirOwnAverage) {
  for (const std::string_view spec : {"none", "bf16"})
    run_ranks(4, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> buckets;
        for (std::size_t i = 0; i < 9; ++i)
          buckets.emplace_back(i * 100 + 1, static_cast<float>(comm.rank()) + static_cast<float>(i) * 4);
        std::vector<std::shared_ptr<Averaging>> under_way;
        for (auto& bucket : buckets) under_way.push_back(exchange->start(bucket));
        for (auto& averaging : under_way) averaging->wait();
        for (std::size_t i = 0; i < buckets.size(); ++i)
          for (const float average : buckets[i]) ASSERT_EQ(average, 1.5F + static_cast<float>(i) * 4);
      }
    });
}

TEST(Exchange, AHandleMayBeDroppedWhileItsBucketIsUnderWay) {
  for (const std::string_view spec : {"none", "bf16"})
    run_ranks(2, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      auto bucket = varied_gradients(comm.rank(), odd_size);
      exchange->start(bucket);
      comm.barrier();
      std::vector<float> second(odd_size, 1.0F);
      exchange->start(second)->wait();
      EXPECT_EQ(second[0], 1.0F);
    });
}

TEST(Exchange, TheCallbackFindsTheAverageInTheBucket) {
  for (const std::string_view spec : {"none", "bf16"})
    run_ranks(2, [&](Communicator& comm) {
      std::vector<float> bucket(odd_size, static_cast<float>(comm.rank() * 2));
      std::atomic<float> seen = -1;
      const auto exchange = make_exchange(spec, comm);
      const auto averaging = exchange->start(bucket);
      averaging->on_done([&] { seen = bucket.back(); });
      while (seen < 0) std::this_thread::yield();
      EXPECT_EQ(seen, 1.0F);
      EXPECT_TRUE(averaging->done());
      EXPECT_EQ(averaging->error(), nullptr);
    });
}

// By each class of averages; in time and afterwards.
TEST(Exchange, WhatACallbackThrowsConcernsNobodyElse) {
  run_ranks(2, [](Communicator& comm) {
    for (const std::string_view spec : {"none", "bf16", "int4", "powersgd:2", "acpsgd:2", "thc:8", "switchml", "demo",
                                        "delta+int4", "normalize+int4"}) {
      const std::vector<Tensor> tensors{{.id = 1, .rows = 50, .columns = 50}};
      std::vector<float> bucket(2500, static_cast<float>(comm.rank()));
      std::atomic<int> called = 0;
      const auto exchange = make_exchange(spec, comm);
      const auto averaging = exchange->start({.values = bucket, .tensors = tensors});
      const auto throws = [] { throw std::runtime_error("of a callback"); };
      averaging->on_done(throws);
      averaging->on_done([&] { ++called; });
      EXPECT_NO_THROW(averaging->wait()) << spec;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (called < 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      EXPECT_NO_THROW(averaging->on_done(throws)) << spec;
      averaging->on_done([&] { ++called; });
      EXPECT_EQ(called, 2) << spec;
      EXPECT_EQ(averaging->error(), nullptr) << spec;
      EXPECT_NO_THROW(exchange->start({.values = bucket, .tensors = tensors})->wait()) << spec;
    }
  });
}

TEST(Exchange, AFailureReachesTheOneWhoWaits) {
  for (const std::string_view spec : {"none", "bf16"})
    run_ranks(2, [&](Communicator& comm) {
      auto bucket = varied_gradients(comm.rank(), comm.rank() == 0 ? odd_size : odd_size + 1);
      const auto exchange = make_exchange(spec, comm);
      try {
        exchange->start(bucket)->wait();
        ADD_FAILURE() << "buckets of different sizes were averaged";
      } catch (const Error& error) {
        EXPECT_TRUE(error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::aborted) << error.what();
      }
    });
}

TEST(Exchange, AnUnknownSpecNamesTheNearestRightOne) {
  const auto sentence = [](std::string_view spec) -> std::string {
    try {
      check_exchange(spec);
      return "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
  };
  EXPECT_THAT(sentence("bf61"), HasSubstr("did you mean 'bf16'?"));
  EXPECT_THAT(sentence("non"), HasSubstr("'none' (did you mean that?)"));
  EXPECT_EQ(sentence("none"), "accepted");
  EXPECT_EQ(sentence("bf16"), "accepted");
  EXPECT_EQ(sentence("powersgd:4+bf16"), "accepted");
  EXPECT_EQ(sentence("thc:4"), "accepted");
  EXPECT_EQ(sentence("extreme"), "accepted");
  EXPECT_THAT(sentence("thc:5"), HasSubstr("write thc:4 or thc:8"));
  EXPECT_THAT(sentence("thc:8+rans"), HasSubstr("'rans' stands behind 'thc'"));
  EXPECT_EQ(sentence("switchml"), "accepted");
  EXPECT_EQ(sentence("demo:32,chunk=64,decay=0.9,sign=0"), "accepted");
  EXPECT_THAT(sentence("demo:decay=1"), HasSubstr("from 0 to 0.9999")) << "momentum that never decays";
  for (const std::string_view way : {"powersgd", "acpsgd", "thc", "switchml", "demo"})
    EXPECT_EQ(sentence(way), "accepted") << "which errors name as a spec";
  EXPECT_THAT(sentence("demo:32,chunk=65"), HasSubstr("from 1 to 64"));
  EXPECT_THAT(sentence("demo+int8"), HasSubstr("'int8' stands behind 'demo'"));
  EXPECT_THAT(sentence("switchml:8"), HasSubstr("'switchml' takes no value"));
  EXPECT_THAT(sentence("switchml+rans"), HasSubstr("'rans' stands behind 'switchml'"));
  EXPECT_THAT(sentence("powersgd:4+int8"), HasSubstr("write bf16 or fp16 behind 'powersgd'"));
  EXPECT_THAT(sentence("powersgd:4+randk:0.1+bf16"), HasSubstr("write bf16 or fp16 behind 'powersgd'"));
  EXPECT_THAT(sentence("powersgd:4+randk:0.1,ef=0+bf16"), HasSubstr("write bf16 or fp16 behind 'powersgd'"));
  EXPECT_THAT(sentence("acpsgd:0"), HasSubstr("from 1 to 64"));
  EXPECT_THAT(sentence("rans+int8"), HasSubstr("'int8' stands behind 'rans'"));
}

TEST(Exchange, ASpecThatAnotherRankDoesNotHaveIsRefusedNamingIt) {
  run_ranks(3, [](Communicator& comm) {
    try {
      make_exchange(comm.rank() == 1 ? "int4" : "int8", comm);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      EXPECT_EQ(error.culprit(), 1);
      EXPECT_STREQ(error.what(),
                   "rank 0 compresses with 'int8' and rank 1 with 'int4'; give the same spec to every rank");
    }
  });
}

// It says itself what is wrong with the spec, and the others, who would wait for it, what it has.
TEST(Exchange, ASpecOfOneRankThatIsNoneIsNewsToAll) {
  run_ranks(3, [](Communicator& comm) {
    for (const std::string_view wrong : {"bf61", "rans+int8", "topk:2"}) {
      try {
        make_exchange(comm.rank() == 2 ? wrong : "bf16", comm);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), comm.rank() == 2 ? ErrorKind::usage : ErrorKind::mismatch);
        if (comm.rank() != 2) {
          EXPECT_EQ(error.what(), "rank 0 compresses with 'bf16' and rank 2 with '" + std::string(wrong) +
                                      "'; give the same spec to every rank");
        }
      }
    }
    comm.barrier();  // nothing has been lost by it
  });
}

TEST(Exchange, ACodecThatCannotBeSummedIsRefused) {
  run_ranks(1,
            [](Communicator& comm) { EXPECT_THROW(summable_exchange(comm, std::make_unique<NotSummable>()), Error); });
}

}  // namespace
}  // namespace ranvier
