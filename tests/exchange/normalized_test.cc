// `normalize`: codes of values over what is usual in their place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;
using ::testing::HasSubstr;

constexpr std::size_t length = 4096;

// Every other value is a hundredth of its neighbours, or as large as they are.
std::vector<float> unlike(Rank rank, unsigned step) {
  auto values = gradients(rank, length, step);
  for (std::size_t i = 0; i < length; i += 2) values[i] *= 0.01F;
  return values;
}
// How much of the small ones' sum is lost, in parts of its energy.
double loss_of_small(std::span<const float> average, Rank world, unsigned step) {
  std::vector<double> exact(length);
  for (Rank rank = 0; rank < world; ++rank) {
    const auto values = unlike(rank, step);
    for (std::size_t i = 0; i < length; ++i) exact[i] += static_cast<double>(values[i]) / static_cast<double>(world);
  }
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < length; i += 2) {
    error += std::pow(static_cast<double>(average[i]) - exact[i], 2);
    energy += exact[i] * exact[i];
  }
  return error / energy;
}

TEST(Normalize, KeepsOfSmallValuesWhatACodeOfTheirBlockLoses) {
  for (const Rank world : {2, 3})
    run_ranks(world, [](Communicator& comm) {
      const std::string codec = "qsgd:3,block=256,rounding=nearest,ef=0";
      const auto plain = make_exchange(codec, comm), normalized = make_exchange("normalize+" + codec, comm);
      const std::vector<Tensor> tensors{{.id = 1, .columns = length}};
      constexpr unsigned steps = 60;
      for (unsigned step = 0; step <= steps; ++step) {
        auto by_block = unlike(comm.rank(), step), by_value = by_block;
        plain->start({.values = by_block, .tensors = tensors})->wait();
        normalized->start({.values = by_value, .tensors = tensors})->wait();
        expect_equal_everywhere(comm, by_value);
        if (step == 0) {
          EXPECT_EQ(by_value, by_block) << "nothing is known yet";
        }
        if (step < steps) continue;
        EXPECT_GT(loss_of_small(by_block, comm.world(), step), 0.9);
        EXPECT_LT(loss_of_small(by_value, comm.world(), step), 0.5);
      }
      EXPECT_EQ(plain->state_bytes(), 0U);
      EXPECT_EQ(normalized->state_bytes(), length * sizeof(float));
    });
}

TEST(Normalize, AFloatIsWhatItWas) {
  run_ranks(2, [](Communicator& comm) {
    const auto exchange = make_exchange("normalize", comm), dense = make_exchange("none", comm);
    const std::vector<Tensor> tensors{{.id = 1, .columns = length}};
    for (unsigned step = 0; step < 5; ++step) {
      auto a = unlike(comm.rank(), step), b = a;
      a[0] = b[0] = step == 1 ? 1e30F : 0;  // once huge, and nothing before and after
      exchange->start({.values = a, .tensors = tensors})->wait();
      dense->start({.values = b, .tensors = tensors})->wait();
      for (std::size_t i = 0; i < length; ++i)
        ASSERT_NEAR(a[i], b[i], 2e-7 + 1e-6 * std::fabs(b[i])) << i << " in " << step;
    }
  });
}

// As large as the largest floats, or as small as the smallest ones.
TEST(Normalize, NoMagnitudeIsLost) {
  run_ranks(2, [](Communicator& comm) {
    for (const float scale : {1e-37F, 1e-20F, 1e12F}) {
      const auto exchange = make_exchange("normalize+int8:ef=0", comm);
      const std::vector<Tensor> tensors{{.id = 1, .columns = length}};
      for (unsigned step = 0; step < 4; ++step) {
        auto bucket = unlike(comm.rank(), step);
        for (float& each : bucket) each *= scale;
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        for (float& each : bucket) each /= scale;
        for (const float each : bucket) ASSERT_TRUE(std::isfinite(each)) << scale;
        if (step > 0 && scale > 1e-30F) {  // nothing is known at the first one
          EXPECT_LT(loss_of_small(bucket, comm.world(), step), 0.1) << scale << " in " << step;
        }
      }
    }
  });
}

TEST(Normalize, ACheckpointGoesOnAsIfNothingHadHappened) {
  run_ranks(2, [](Communicator& comm) {
    for (const std::string spec : {"normalize+qsgd:3,rounding=nearest", "normalize+bf16"}) {
      const std::vector<Tensor> tensors{{.id = 5, .columns = length}};
      const auto one = make_exchange(spec, comm), other = make_exchange(spec, comm),
                 values = make_exchange("int4", comm);
      std::vector<float> a, b;
      for (unsigned step = 0; step < 4; ++step) {
        a = unlike(comm.rank(), step);
        one->start({.values = a, .tensors = tensors})->wait();
      }
      const auto kept = one->save({.values = a, .tensors = tensors});
      EXPECT_TRUE(owed_in(kept).empty());
      other->restore({.values = a, .tensors = tensors}, kept);
      values->restore({.values = a, .tensors = tensors}, kept);  // owes nothing either
      a = b = unlike(comm.rank(), 4);
      one->start({.values = a, .tensors = tensors})->wait();
      other->start({.values = b, .tensors = tensors})->wait();
      EXPECT_EQ(a, b) << spec;
      EXPECT_EQ(owed_in(values->save({.values = a, .tensors = tensors})), std::vector<float>(length));

      // And what another codec owed is paid.
      const auto third = make_exchange(spec, comm);
      const auto lossy = make_exchange("int2", comm);
      a = unlike(comm.rank(), 0);
      lossy->start({.values = a, .tensors = tensors})->wait();
      const auto debt = lossy->save({.values = a, .tensors = tensors});
      EXPECT_FALSE(owed_in(debt).empty());
      third->restore({.values = a, .tensors = tensors}, debt);
      EXPECT_EQ(owed_in(third->save({.values = a, .tensors = tensors})), owed_in(debt));
    }
  });
}

TEST(Normalize, StandsFirstAndHasNoErrorFeedback) {
  const auto said_of = [](const std::string& spec) -> std::string {
    try {
      check_exchange(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const std::string spec : {"normalize+int4", "normalize+hadamard:32+int4+rans", "normalize+sign:by=all_gather"})
    EXPECT_EQ(said_of(spec), "") << spec;
  for (const auto& [spec, why] : std::vector<std::pair<std::string, std::string>>{
           {"int4+normalize", "write 'normalize+' once in front of it"},
           {"normalize+normalize+int4", "write 'normalize+' once in front of it"},
           {"normalize+delta+int4", "beside codes of changes"},
           {"delta+normalize+int4", "beside codes of changes"},
           {"normalize+int4:ef=21", "beside codes of changes"},
           {"normalize+int4:ef=1", "leave ef=1 or normalize out"},
           {"normalize+int4:momentum=0.9", "momentum="},
           {"normalize+topk:0.1", "a sparsifier loses"},
           {"normalize+bf16+lossless", "loses nothing"}})
    EXPECT_THAT(said_of(spec), HasSubstr(why)) << spec;
}

}  // namespace
}  // namespace ranvier
