// Averages by codes: scatter, reduce, gather.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using support::run_ranks;

TEST(Coded, GivesTheAverageWithinTwoRoundingsForEveryWorldAndSize) {
  for (const Rank world : {1, 2, 3, 4, 7})
    run_ranks(world, [&](Communicator& comm) {
      const auto exchange = make_exchange("int8:block=32", comm);
      for (const std::size_t count : {1, 2, 5, 1000, 70'000}) {
        auto bucket = gradients(comm.rank(), count);
        exchange->start(bucket)->wait();
        const auto exact = exact_sum(world, count);
        // Values are below 6: half a step of 6 / 127 from each other rank, and of the sum's from its owner.
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_NEAR(bucket[i], exact[i] / world, world == 1 ? 0 : 2.1 * 6.0 / 254) << i << " of " << count;
        expect_equal_everywhere(comm, bucket);
      }
    });
}

TEST(Coded, AllRanksHaveTheSameBitsWhateverTheCodec) {
  for (const std::string_view spec : {"int4",
                                      "hadamard:32+int4+rans",
                                      "eden",
                                      "sign",
                                      "topk:0.01+int8",
                                      "dgc:0.01",
                                      "qsgd:7+huffman",
                                      "lossless",
                                      "natural",
                                      "randk:0.1",
                                      "threshold:2",
                                      "mx:e2m1",
                                      "terngrad",
                                      "topk:0.01,by=reduce_scatter",
                                      "topk:0.01,by=all_gather+int8",
                                      "eden:by=all_gather",
                                      "delta+topk:0.01",
                                      "randk:0.1+bf16",
                                      "randk:0.1+int8",
                                      "thc",
                                      "thc:4",
                                      "switchml"})
    run_ranks(4, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      std::vector<float> first = gradients(comm.rank(), 9001), second = gradients(comm.rank(), 33, 1);
      for (int step = 0; step < 3; ++step) {
        const auto one = exchange->start(first), other = exchange->start(second);
        other->wait();
        one->wait();
        expect_equal_everywhere(comm, first);
        expect_equal_everywhere(comm, second);
      }
      EXPECT_EQ(exchange->plain_buckets(), 0U);
    });
}

TEST(Coded, LosslessIsExactlyTheSumInTheOrderOfRanks) {
  run_ranks(3, [](Communicator& comm) {
    auto bucket = gradients(comm.rank(), 20'000);
    make_exchange("lossless", comm)->start(bucket)->wait();
    const auto a = gradients(0, 20'000), b = gradients(1, 20'000), c = gradients(2, 20'000);
    for (std::size_t i = 0; i < bucket.size(); ++i) ASSERT_EQ(bucket[i], (a[i] + b[i] + c[i]) * (1.0F / 3));
  });
}

// Nothing is lost: what was applied, times the world, and what all ranks hold back, is the sum of all gradients.
TEST(Coded, AppliedAndHeldBackAddUpToAllGradients) {
  constexpr std::size_t count = 5000;
  constexpr Rank world = 4;
  constexpr unsigned steps = 12;
  for (const std::string_view spec :
       {"int2", "sign", "topk:0.02,by=reduce_scatter+int4", "topk:0.02,by=all_gather+int4", "hadamard:32+int4+rans",
        "int2:by=all_gather", "randk:0.1", "randk:0.1+int8", "thc:8", "thc:4", "switchml"})
    run_ranks(world, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      std::vector<double> applied(count), given(count);
      std::vector<float> bucket(count);
      for (unsigned step = 0; step < steps; ++step) {
        std::ranges::copy(gradients(comm.rank(), count, step), bucket.begin());
        exchange->start(bucket)->wait();
        const auto exact = exact_sum(world, count, step);
        for (std::size_t i = 0; i < count; ++i) {
          applied[i] += static_cast<double>(bucket[i]) * world;
          given[i] += exact[i];
        }
      }
      EXPECT_GE(exchange->state_bytes(), count * sizeof(float));
      EXPECT_LE(exchange->state_bytes(), count * sizeof(float) * 1.02);
      // What is held back shows in the difference; with gradients of zero it has to come out. A few steps of zeros
      // bring the dense codecs within a small share of what was missing.
      double before = 0, after = 0;
      for (std::size_t i = 0; i < count; ++i) before += std::pow(given[i] - applied[i], 2);
      for (unsigned step = 0; step < 100; ++step) {
        std::fill(bucket.begin(), bucket.end(), 0.0F);
        exchange->start(bucket)->wait();
        for (std::size_t i = 0; i < count; ++i) applied[i] += static_cast<double>(bucket[i]) * world;
      }
      for (std::size_t i = 0; i < count; ++i) after += std::pow(given[i] - applied[i], 2);
      EXPECT_GT(before, 0) << spec;
      EXPECT_LT(after, 1e-2 * before) << spec;
    });
}

// Of dist-EF-SGDM: what comes out in the end is all momentum of all gradients, 1 / (1 - m) of them.
TEST(Coded, MomentumBeforeErrorFeedbackIsDeliveredWhole) {
  constexpr std::size_t count = 3000;
  constexpr Rank world = 3;
  for (const std::string_view spec :
       {"sign:momentum=0.5", "hadamard:32+int4:momentum=0.5", "topk:0.05,momentum=0.5,by=reduce_scatter+int8",
        "topk:0.05,momentum=0.5,by=all_gather+int8"})
    run_ranks(world, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      EXPECT_EQ(exchange->momentum(), 0.5);
      std::vector<double> missing(count);
      std::vector<float> bucket(count);
      double given = 0, left = 0;
      for (unsigned step = 0; step < 150; ++step) {
        std::ranges::fill(bucket, 0.0F);
        if (step < 6) {
          std::ranges::copy(gradients(comm.rank(), count, step), bucket.begin());
          const auto exact = exact_sum(world, count, step);
          for (std::size_t i = 0; i < count; ++i) missing[i] += 2 * exact[i] / world;
        }
        if (step == 6)
          for (const double value : missing) given += value * value;
        exchange->start(bucket)->wait();
        for (std::size_t i = 0; i < count; ++i) missing[i] -= static_cast<double>(bucket[i]);
      }
      for (const double value : missing) left += value * value;
      EXPECT_LT(left, 1e-2 * given) << spec;
    });
}

// What no code holds in the other rank's part takes this rank's along, whose momentum has gone on.
TEST(Coded, MomentumOfAStepThatGoesPlainIsPaidInTheNextOne) {
  run_ranks(2, [](Communicator& comm) {
    for (const std::string_view spec : {"fp32:momentum=0.5", "topk:1,momentum=0.5,by=reduce_scatter+fp32"}) {
      const auto exchange = make_exchange(spec, comm);
      double sum = 0;
      for (int step = 0; step < 3; ++step) {
        std::vector<float> bucket(2000, 1);
        if (step == 1 && comm.rank() == 1) bucket[0] = 1e20F;
        exchange->start(bucket)->wait();
        sum += static_cast<double>(bucket[1500]);
      }
      EXPECT_EQ(exchange->plain_buckets(), 1U) << spec;
      EXPECT_NEAR(sum, 1 + 1.5 + 1.75, 1e-5) << spec;
    }
  });
}

TEST(Coded, MomentumOfWhatLosesNothingIsThatOfAnOptimizer) {
  run_ranks(3, [](Communicator& comm) {
    const auto exchange = make_exchange("fp32:momentum=0.5", comm);
    std::vector<float> bucket(100);
    for (const float expected : {1.0F, 1.5F, 1.75F}) {
      std::ranges::fill(bucket, static_cast<float>(comm.rank()));
      exchange->start(bucket)->wait();
      for (const float value : bucket) ASSERT_NEAR(value, expected, 1e-6);
    }
  });
}

TEST(Coded, WhatIsNotFiniteReachesEverybodyAsItIsAndIsCounted) {
  for (const std::string_view spec :
       {"int4", "sign:momentum=0.9", "switchml", "topk:0.01,by=reduce_scatter+int8", "topk:0.01,by=all_gather+int8",
        "dgc:0.01", "hadamard:32+int4+rans", "delta+topk:0.01+int8", "randk:0.1+bf16"})
    for (const Rank world : {2, 4})
      run_ranks(world, [&](Communicator& comm) {
        const auto exchange = make_exchange(spec, comm);
        constexpr std::size_t count = 9000;
        for (const std::size_t place : {std::size_t{0}, count - 1}) {
          auto bucket = gradients(comm.rank(), count);
          if (comm.rank() == 1) bucket[place] = NAN;
          if (comm.rank() == 0) bucket[place / 2 + 1] = INFINITY;
          exchange->start(bucket)->wait();
          EXPECT_TRUE(std::isnan(bucket[place]));
          EXPECT_EQ(bucket[place / 2 + 1], INFINITY);
          const auto exact = exact_sum(world, count);
          for (std::size_t i = 0; i < count; ++i) {
            if (i == place || i == place / 2 + 1) continue;
            ASSERT_NEAR(bucket[i], exact[i] / world, 1e-5) << i;
          }
          expect_equal_everywhere(comm, bucket);
        }
        EXPECT_EQ(exchange->plain_buckets(), 2U);
        // And afterwards all is as before: no residual has been spoilt.
        auto bucket = gradients(comm.rank(), count);
        exchange->start(bucket)->wait();
        for (const float value : bucket) ASSERT_TRUE(std::isfinite(value));
        EXPECT_EQ(exchange->plain_buckets(), 2U);
      });
}

TEST(Coded, ValuesWhoseTransformHasNoCodeGoPlain) {
  for (const std::string_view spec : {"dct+topk:0.1,by=reduce_scatter", "dct+topk:0.1,by=all_gather",
                                      "dct:ef=0+topk:0.1,by=reduce_scatter", "dct:ef=0+topk:0.1,by=all_gather"})
    run_ranks(2, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      std::vector<float> bucket(128, comm.rank() == 0 ? 0x1p48F : 0);
      exchange->start(bucket)->wait();
      EXPECT_EQ(bucket, std::vector<float>(128, 0x1p47F));
      EXPECT_EQ(exchange->plain_buckets(), 1U);
    });
}

TEST(Coded, APlainBucketLeavesTheResidualAsItWas) {
  for (const std::string_view spec : {"sign", "sign:by=all_gather", "delta+sign"})
    run_ranks(3, [&](Communicator& comm) {
      const auto twin = make_exchange(spec, comm), exchange = make_exchange(spec, comm);
      constexpr std::size_t count = 3000;
      std::vector<float> a, b;
      for (unsigned step = 0; step < 3; ++step) {
        a = gradients(comm.rank(), count, step);
        twin->start({.values = a, .tensors = std::vector<Tensor>{{.id = 1, .columns = count}}})->wait();
        b = gradients(comm.rank(), count, step);
        exchange->start({.values = b, .tensors = std::vector<Tensor>{{.id = 1, .columns = count}}})->wait();
        if (step == 1) {
          std::vector<float> bad = gradients(comm.rank(), count, 99);
          if (comm.rank() == 2) bad[1500] = NAN;
          exchange->start({.values = bad, .tensors = std::vector<Tensor>{{.id = 1, .columns = count}}})->wait();
        }
      }
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(a[i], b[i], 1e-3);
    });
}

// Of which no codec sees the values: they are not sent.
TEST(Coded, MomentumOfARanksOwnPartKeepsNothingThatIsNotFinite) {
  for (const std::string_view spec :
       {"dgc:0.1,by=reduce_scatter+int4", "dgc:0.1,by=all_gather+int4", "int8:momentum=0.9"})
    run_ranks(2, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      constexpr std::size_t count = 2000;
      const std::vector<Tensor> tensors{{.id = 1, .columns = count}};
      for (unsigned step = 0; step < 4; ++step) {
        auto bucket = gradients(comm.rank(), count, step);
        if (step == 1 && comm.rank() == 0) bucket.front() = INFINITY;
        if (step == 1 && comm.rank() == 1) bucket.back() = NAN;
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        for (std::size_t i = 1; i + 1 < count; ++i) ASSERT_TRUE(std::isfinite(bucket[i])) << i << " in step " << step;
        EXPECT_EQ(std::isfinite(bucket.front()), step != 1) << step;
        EXPECT_EQ(std::isnan(bucket.back()), step == 1) << step;
      }
      EXPECT_EQ(exchange->plain_buckets(), 1U);
    });
}

// Beyond 2^50 a value has no code either, and momentum would keep it for long.
TEST(Coded, MomentumOfARanksOwnPartKeepsNothingThatHasNoCode) {
  for (const std::string_view spec : {"dgc:0.1,by=reduce_scatter+int4", "int8:momentum=0.9", "sign:momentum=0.9"})
    for (const std::size_t place : {100U, 1900U})
      run_ranks(2, [&](Communicator& comm) {
        const auto exchange = make_exchange(spec, comm);
        constexpr std::size_t count = 2000;
        const std::vector<Tensor> tensors{{.id = 1, .columns = count}};
        for (unsigned step = 0; step < 30; ++step) {
          auto bucket = gradients(comm.rank(), count, step);
          if (step == 3 && comm.rank() == 1) bucket[place] = 1e20F;
          exchange->start({.values = bucket, .tensors = tensors})->wait();
          if (step == 3) continue;
          for (const float value : bucket) ASSERT_LT(std::abs(value), 1e6) << spec << " in step " << step;
        }
        EXPECT_EQ(exchange->plain_buckets(), 1U) << spec;
      });
}

TEST(Coded, MomentumOfARankAloneKeepsNothingThatHasNoCode) {
  for (const std::string_view spec : {"dgc:0.1", "int8:momentum=0.9"})
    run_ranks(1, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      const std::vector<Tensor> tensors{{.id = 1, .columns = 100}};
      for (unsigned step = 0; step < 5; ++step) {
        auto bucket = gradients(0, 100, step);
        if (step == 1) bucket[7] = 1e20F;
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        EXPECT_EQ(std::abs(bucket[7]) > 1e6, step == 1) << spec << " in step " << step;
      }
    });
}

// Of a bucket of several slices the one that went plain stays where it was, and the others go on.
TEST(Coded, ChangesGoOnBesideASliceThatWentPlain) {
  for (const float bad : {NAN, 1e20F, 1.5e15F}) {
    if (support::sanitized && !std::isnan(bad)) continue;  // a minute each
    for (const std::string_view spec : {"delta+topk:0.3,by=reduce_scatter", "delta+int8", "int4:ef=21"})
      run_ranks(2, [&](Communicator& comm) {
        const auto exchange = make_exchange(spec, comm);
        constexpr std::size_t count = 1'200'000;
        const std::vector<Tensor> tensors{{.id = 1, .columns = count}};
        const auto mean = [&] {
          auto both = gradients(0, count);
          const auto other = gradients(1, count);
          for (std::size_t i = 0; i < count; ++i) both[i] = (both[i] + other[i]) / 2;
          return both;
        }();
        std::vector<float> bucket;
        for (unsigned step = 0; step < 14; ++step) {
          bucket = gradients(comm.rank(), count);
          if (step == 2 && comm.rank() == 1) bucket[10] = bad;
          exchange->start({.values = bucket, .tensors = tensors})->wait();
        }
        for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(bucket[i], mean[i], 0.05) << spec << " at " << i;
        EXPECT_EQ(exchange->plain_buckets(), 1U) << spec;
      });
  }
}

// A rank that goes on alone sends nothing.
TEST(Coded, OneRankAloneLosesNothing) {
  for (const std::string_view spec :
       {"thc:8", "thc:4", "switchml", "randk:0.2", "bf16", "powersgd:2", "acpsgd:2", "int8", "topk:0.1"})
    run_ranks(1, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      const auto before = gradients(0, 4000);
      auto bucket = before;
      exchange->start({.values = bucket, .tensors = std::vector<Tensor>{{.id = 1, .rows = 40, .columns = 100}}})
          ->wait();
      EXPECT_EQ(bucket, before) << spec;
    });
}

// A checkpoint of two ranks that one goes on with: nobody else will ever ask for what it owes.
TEST(Coded, OneRankAlonePaysWhatItOwes) {
  constexpr std::size_t count = 1000;
  const std::vector<Tensor> tensors{{.id = 1, .columns = count}};
  for (const std::string_view spec : {"sign", "topk:0.1,by=all_gather", "dgc:0.1,momentum=0.5", "sign:momentum=0.5"}) {
    std::vector<std::byte> kept;
    std::vector<float> residual(count), velocity(count);
    run_ranks(2, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      auto bucket = gradients(comm.rank(), count);
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      if (comm.rank() == 0) kept = exchange->save({.values = bucket, .tensors = tensors});
    });
    constexpr std::size_t head = 56;
    std::memcpy(residual.data(), kept.data() + head, count * sizeof(float));
    const float momentum = spec.ends_with("momentum=0.5") ? 0.5F : 0;
    if (momentum > 0) std::memcpy(velocity.data(), kept.data() + head + count * sizeof(float), count * sizeof(float));
    EXPECT_GT(std::ranges::count_if(residual, [](float value) { return value != 0; }), 100);
    run_ranks(1, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      std::vector<float> bucket(count, NAN);
      exchange->restore({.values = bucket, .tensors = tensors}, kept);
      exchange->start({.values = bucket, .tensors = tensors})->wait();  // leaves it as it is
      for (int step = 1; step < 4; ++step) {
        std::fill(bucket.begin(), bucket.end(), 1.0F);
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        for (std::size_t i = 0; i < count; ++i) {
          velocity[i] = momentum * velocity[i] + 1;
          ASSERT_FLOAT_EQ(bucket[i], velocity[i] + (step == 1 ? residual[i] : 0)) << spec << " in step " << step;
        }
      }
    });
  }
}

TEST(Coded, SendsTwoCodesOfTheBucketWhateverTheWorld) {
  for (const Rank world : {2, 4})
    run_ranks(world, [&](Communicator& comm) {
      constexpr std::size_t count = 1 << 18;
      auto bucket = gradients(comm.rank(), count);
      const auto exchange = make_exchange("int8:block=64", comm);
      const auto before = comm.traffic().bytes_sent;
      exchange->start(bucket)->wait();
      const auto expected = 2.0 * (world - 1) / world * count * 8.25 / 8;
      EXPECT_NEAR(static_cast<double>(comm.traffic().bytes_sent - before), expected, expected * 1e-3);
    });
}

TEST(Coded, DgcOfOneRankIsMomentum) {
  run_ranks(1, [](Communicator& comm) {
    const auto exchange = make_exchange("dgc:0.01,momentum=0.5", comm);
    EXPECT_EQ(exchange->momentum(), 0.5);
    std::vector<float> bucket(10);
    for (const float expected : {1.0F, 1.5F, 1.75F}) {
      std::fill(bucket.begin(), bucket.end(), 1.0F);
      exchange->start(bucket)->wait();
      EXPECT_EQ(bucket[3], expected);
    }
  });
}

// Sent completely, DGC is momentum too: what all ranks apply is the sum of corrected momentum and nothing is held back.
TEST(Coded, DgcThatSendsEverythingDeliversAllMomentum) {
  run_ranks(2, [](Communicator& comm) {
    const auto exchange = make_exchange("dgc:1,momentum=0.5,by=reduce_scatter", comm);
    std::vector<float> bucket(10);
    for (int step = 0; step < 3; ++step) {
      std::fill(bucket.begin(), bucket.end(), static_cast<float>(comm.rank() + 1));
      exchange->start(bucket)->wait();
    }
    // Part 0 belongs to rank 0, whose own momentum of 1.75 goes whole; rank 1's is masked where it was sent.
    EXPECT_EQ(bucket[0], (1.75F + 2) / 2);
    EXPECT_EQ(bucket[9], (1 + 3.5F) / 2);
  });
}

// All values of the second tensor are smaller than any of the first: without layers none of it would be sent.
TEST(Coded, LayersSendTheirShareOfEachTensor) {
  constexpr std::size_t count = 20'000, small = 400;
  const std::vector<Tensor> tensors{{.id = 1, .columns = count - small}, {.id = 2, .columns = small}};
  for (const std::string_view spec : {"topk:0.05,layers=1,by=reduce_scatter", "topk:0.05,layers=1,by=all_gather",
                                      "dgc:0.05,layers=1,by=reduce_scatter"})
    run_ranks(2, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      auto bucket = gradients(0, count);  // the same on all ranks: they choose alike
      for (std::size_t i = count - small; i < count; ++i) bucket[i] *= 1e-5F;
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      const auto sent = std::ranges::count_if(std::span(bucket).last(small), [](float value) { return value != 0; });
      EXPECT_NEAR(static_cast<double>(sent), 0.05 * small, 2) << spec;
      expect_equal_everywhere(comm, bucket);
    });
}

// Lin et al., section 3.2: each rank's limit is the global one over the root of their number; 2 of 4 ranks are above
// it. And it is one for each tensor, whatever bucket they came in.
TEST(Coded, DgcClipsEachRanksGradientsBeforeItAddsThemUp) {
  for (const std::string_view spec :
       {"dgc:1,momentum=0,clip=6,by=reduce_scatter", "dgc:1,momentum=0,clip=6,by=all_gather"})
    run_ranks(4, [&](Communicator& comm) {
      const std::vector<Tensor> tensors{{.id = 1, .columns = 100}, {.id = 2, .columns = 100}};
      const auto exchange = make_exchange(spec, comm);
      for (int step = 0; step < 2; ++step) {
        std::vector<float> bucket(200, static_cast<float>(comm.rank() + 1) / 8);  // each tensor of norm 10 / 8 to 5
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        for (const float value : bucket) ASSERT_NEAR(value, (1.0F / 8 + 2.0F / 8 + 0.3F + 0.3F) / 4, 1e-6) << spec;
      }
      std::vector<float> bucket(100, comm.rank() == 2 ? INFINITY : 9.0F);
      exchange->start(bucket)->wait();
      EXPECT_EQ(bucket[0], INFINITY);
      EXPECT_EQ(exchange->plain_buckets(), 1U);
    });
}

TEST(Coded, SlicesOfALargeBucketAreOneAverage) {
  for (const std::string_view spec : {"bf16+lossless", "bf16+lossless:by=all_gather"})
    run_ranks(2, [&](Communicator& comm) {
      constexpr std::size_t count = (1 << 21) + 77;  // three slices
      auto bucket = gradients(comm.rank(), count);
      const auto exchange = make_exchange(spec, comm);
      exchange->start(bucket)->wait();
      const auto a = gradients(0, count), b = gradients(1, count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_NEAR(bucket[i], (a[i] + b[i]) / 2, 0x1p-7 * (std::fabs(a[i]) + std::fabs(b[i])));
    });
}

TEST(Coded, AHandleMayBeDroppedAndCallbacksFindTheAverage) {
  run_ranks(3, [](Communicator& comm) {
    const auto exchange = make_exchange("int8", comm);
    std::vector<float> dropped(777, 3), bucket(777, static_cast<float>(comm.rank()));
    exchange->start(dropped);
    std::atomic<float> seen = -1;
    const auto averaging = exchange->start(bucket);
    averaging->on_done([&] { seen = bucket.back(); });
    while (seen < 0) std::this_thread::yield();
    EXPECT_NEAR(seen, 1, 0.02);
    comm.barrier();
    averaging->wait();
    EXPECT_TRUE(averaging->done());
    EXPECT_EQ(averaging->error(), nullptr);
  });
}

// With a control plane: the rank that notices first stops sending, and only its news reaches the other one in time.
TEST(Coded, AFailureReachesTheOneWhoWaits) {
  run_ranks(2,
            [&](Communicator& comm) {
              std::vector<float> bucket(comm.rank() == 0 ? 1000 : 5000);
              const auto exchange = make_exchange("int8", comm);
              try {
                exchange->start(bucket)->wait();
                ADD_FAILURE() << "buckets of different sizes were averaged";
              } catch (const Error& error) {
                EXPECT_TRUE(error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::aborted) << error.what();
              }
            },
            {.way = "shm"});
}

// Says when it begins to decode as many values as it is told, and then takes its time.
class SlowDecoder final : public Codec {
 public:
  SlowDecoder(std::size_t slow, std::promise<void>& begun) : slow_(slow), begun_(begun) {}
  std::string_view spec() const override { return "slow"; }
  std::size_t max_bytes(std::size_t) const override { return 1; }
  std::size_t encode(std::span<const float>, const CodecState&, Bytes, const CodecKey&) const override { return 1; }
  void decode(ConstBytes, std::span<float> out, Combine) const override {
    if (out.size() != slow_) return;
    begun_.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }

 private:
  const std::size_t slow_;
  std::promise<void>& begun_;
};

// The caller takes the bucket back then, into which a slice may still be written.
TEST(Coded, WhoWaitsForASliceThatFailedWaitsForTheOthersToo) {
  constexpr std::size_t last_slice = 1000;
  constexpr std::uint64_t codes_of_last_slice = std::uint64_t{1} << 63 | 1 << 2;  // a tag, of Phased
  std::promise<void> started, decodes, over;
  run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {  // the code of the first slice never comes
      const std::array<std::uint8_t, 1> code{};
      started.get_future().wait();
      const Work sent = comm.start_send(code, 0, codes_of_last_slice);
      return over.get_future().wait();
    }
    const auto exchange = coded_exchange(comm, std::make_unique<SlowDecoder>(last_slice / 2, decodes));
    std::vector<float> bucket(slice_values + last_slice);
    const auto averaging = exchange->start(bucket);
    started.set_value();
    decodes.get_future().wait();
    comm.abort("the last slice is being decoded");
    EXPECT_THROW(averaging->wait(), Error);
    EXPECT_TRUE(averaging->done());
    EXPECT_NE(averaging->error(), nullptr);
    over.set_value();
  });
}

// PowerSGD hands out its second slice while whoever finished the first one is about to start it.
TEST(Coded, ASliceMayBeWaitedForBeforeItIsStarted) {
  run_ranks(3, [](Communicator& comm) {
    const auto tools = std::make_shared<CodedTools>();
    tools->codec = tools->sums = make_codec("fp32");
    std::vector<float> values(100, static_cast<float>(comm.rank()));
    const auto slice = std::make_shared<CodedSlice>(comm, tools, values, CodecState{}, 0, 0);
    std::thread waiter([&] { slice->wait(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    slice->start([] {});
    waiter.join();
    EXPECT_EQ(values, std::vector<float>(100, 1));
  });
}

}  // namespace
}  // namespace ranvier
