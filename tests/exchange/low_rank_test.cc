// PowerSGD and ACP-SGD.
#include "ranvier/low_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/vectors.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"
#include "support/normal_values.h"

namespace ranvier {
namespace {

using support::normal_values;
using support::run_ranks;

// A matrix of rank 2, the same directions on every rank with other weights; then 10 values of a bias.
constexpr std::size_t rows = 40, columns = 60, bias = 10;
std::vector<float> gradients(Rank rank, unsigned step) {
  const auto left = normal_values(2 * rows, 1), right = normal_values(2 * columns, 2);
  const auto weights = normal_values(2, 100 * step + static_cast<unsigned>(rank));
  std::vector<float> values = normal_values(rows * columns + bias, 5);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      values[row * columns + column] =
          weights[0] * left[row] * right[column] + weights[1] * left[rows + row] * right[columns + column];
  return values;
}
const std::vector<Tensor> tensors{{.id = 1, .rows = rows, .columns = columns}, {.id = 2, .rows = bias, .columns = 1}};

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(squares);
}

// Of vectors of any magnitude, and where some are spanned by others or zero: what is missing then is made up.
TEST(LowRank, OrthonormalVectorsAreThat) {
  constexpr std::size_t length = 37, rank = 5;
  for (const int exponent : {-140, -120, -67, -20, 0, 20, 67, 120})
    for (const bool all_zero : {false, true}) {
      auto vectors = normal_values(length * rank, 3);
      for (std::size_t i = 0; i < length; ++i) {
        vectors[2 * length + i] = 0;
        vectors[3 * length + i] = 2 * vectors[i] - vectors[length + i];
        vectors[4 * length + i] = vectors[i] + 1e-4F * vectors[4 * length + i];  // nearly parallel
      }
      for (float& value : vectors) value = all_zero ? 0 : std::ldexp(value, exponent);
      const auto before = vectors;
      orthonormalize(vectors.data(), length, rank);
      for (std::size_t a = 0; a < rank; ++a)
        for (std::size_t b = 0; b < rank; ++b)
          EXPECT_NEAR(kernel::dot(vectors.data() + a * length, vectors.data() + b * length, length), a == b ? 1 : 0,
                      1e-5)
              << a << ' ' << b << " at 2^" << exponent;
      auto again = before;
      orthonormalize(again.data(), length, rank);
      EXPECT_EQ(again, vectors);
    }
}

TEST(LowRank, OfMoreVectorsThanTheirLengthSomeAreZero) {
  auto vectors = normal_values(3 * 5, 3);
  orthonormalize(vectors.data(), 3, 5);
  for (std::size_t i = 3 * 3; i < vectors.size(); ++i) EXPECT_EQ(vectors[i], 0);
}

TEST(LowRank, ProductsAreThoseOfTheDefinition) {
  const MatrixShape shape{.rows = 5, .columns = 7, .rank = 2};
  const auto matrix = normal_values(35, 1), right = normal_values(14, 2), left = normal_values(10, 3);
  std::vector<float> p(10), q(14), product(35);
  multiply_by_right(shape, matrix.data(), right.data(), p.data());
  multiply_by_left(shape, matrix.data(), left.data(), q.data());
  multiply_factors(shape, left.data(), right.data(), product.data());
  for (std::size_t k = 0; k < 2; ++k) {
    for (std::size_t i = 0; i < 5; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < 7; ++j) sum += static_cast<double>(matrix[i * 7 + j]) * right[k * 7 + j];
      EXPECT_NEAR(p[k * 5 + i], sum, 1e-5);
    }
    for (std::size_t j = 0; j < 7; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < 5; ++i) sum += static_cast<double>(matrix[i * 7 + j]) * left[k * 5 + i];
      EXPECT_NEAR(q[k * 7 + j], sum, 1e-5);
    }
  }
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 7; ++j)
      EXPECT_NEAR(product[i * 7 + j], left[i] * right[j] + left[5 + i] * right[7 + j], 1e-5);
}

TEST(LowRank, FindsTheAverageOfMatricesOfItsRank) {
  for (const Rank world : {2, 3})
    run_ranks(world, [&](Communicator& comm) {
      const auto exchange = make_exchange("powersgd:2", comm);
      for (unsigned step = 0; step < 4; ++step) {
        auto bucket = gradients(comm.rank(), step);
        std::vector<double> exact(bucket.size());
        for (Rank rank = 0; rank < world; ++rank) {
          const auto values = gradients(rank, step);
          for (std::size_t i = 0; i < values.size(); ++i) exact[i] += static_cast<double>(values[i]) / world;
        }
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        EXPECT_LT(distance(bucket, exact), 1e-3) << step;
        for (std::size_t i = rows * columns; i < bucket.size(); ++i) EXPECT_NEAR(bucket[i], exact[i], 1e-6);
      }
    });
}

// Sums of `rank` products with the weights of a step, the same directions at every step.
std::vector<float> gradients_of_rank(std::size_t rank, Rank of, unsigned step, float scale) {
  const auto left = normal_values(rank * rows, 1), right = normal_values(rank * columns, 2);
  const auto weights = normal_values(rank, 100 * step + static_cast<unsigned>(of));
  std::vector<float> values(rows * columns + bias, scale);
  for (std::size_t i = 0; i < rows * columns; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < rank; ++k)
      sum += weights[k] * left[k * rows + i / columns] * right[k * columns + i % columns];
    values[i] = scale * sum;
  }
  return values;
}

// Of what all ranks gave, the share that was not applied yet, after each step. In idle steps gradients are zero or of
// rank 1.
struct Schedule {
  unsigned zero = 0, of_rank_one = 0, full = 0;
  float scale = 1;
};
std::vector<double> shares_missing(std::string_view spec, const Schedule& schedule) {
  constexpr Rank world = 2;
  std::vector<double> shares;
  run_ranks(world, [&](Communicator& comm) {
    const auto exchange = make_exchange(spec, comm);
    std::vector<double> missing(rows * columns + bias);
    double given = 0;
    for (unsigned step = 0; step < schedule.zero + schedule.of_rank_one + schedule.full; ++step) {
      const bool is_zero = step < schedule.zero, is_full = step >= schedule.zero + schedule.of_rank_one;
      const auto of = [&](Rank rank) {
        return gradients_of_rank(is_full ? 4 : 1, rank, step, is_zero ? 0 : schedule.scale);
      };
      std::vector<double> average(missing.size());
      for (Rank rank = 0; rank < world; ++rank) {
        const auto values = of(rank);
        for (std::size_t i = 0; i < values.size(); ++i) average[i] += static_cast<double>(values[i]) / world;
      }
      auto bucket = of(comm.rank());
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      double squares = 0, left = 0;
      for (std::size_t i = 0; i < bucket.size(); ++i) {
        missing[i] += average[i] - static_cast<double>(bucket[i]);
        squares += average[i] * average[i];
        left += missing[i] * missing[i];
      }
      given = std::max(given, std::sqrt(squares));
      if (comm.rank() == 0) shares.push_back(given > 0 ? std::sqrt(left) / given : 0);
    }
  });
  return shares;
}

// A layer may have no gradient at first, as behind a weight of zero, or for a while one of a lower rank.
TEST(LowRank, TrainsAfterGradientsOfZeroOrOfALowerRankAsIfItHadNotSeenThem) {
  for (const std::string_view spec : {"powersgd:4", "acpsgd:4", "powersgd:4+bf16"}) {
    // Of ACP-SGD a step finds one of the factors only. Where directions stay lost, more than 1 is missing soon.
    const double bound = spec.starts_with("acpsgd") ? 0.5 : spec.ends_with("bf16") ? 0.05 : 1e-3;
    for (const Schedule& schedule :
         {Schedule{.zero = 0, .full = 12}, Schedule{.zero = 1, .full = 12}, Schedule{.zero = 2, .full = 12},
          Schedule{.of_rank_one = 5, .full = 12}, Schedule{.zero = 1, .of_rank_one = 5, .full = 12}}) {
      const auto shares = shares_missing(spec, schedule);
      for (std::size_t step = shares.size() - 8; step < shares.size(); ++step)
        EXPECT_LT(shares[step], bound) << spec << ", step " << step << " after " << schedule.zero << " of zero and "
                                       << schedule.of_rank_one << " of rank 1";
    }
  }
}

TEST(LowRank, GradientsOfAnyMagnitudeTrainAlike) {
  for (const std::string_view spec : {"powersgd:4", "acpsgd:4"})
    for (const float scale : {1e-30F, 1e-20F, 1e-10F, 1e10F, 1e20F})
      EXPECT_LT(shares_missing(spec, {.full = 8, .scale = scale}).back(), 1e-3) << spec << " at " << scale;
}

// What is applied and what is held back add up: with gradients of zero, what is held back comes out.
TEST(LowRank, HoldsBackWhatItsRankLacks) {
  for (const std::string_view spec : {"powersgd:1", "acpsgd:1", "powersgd:1+bf16", "acpsgd:1+fp16"})
    run_ranks(3, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      std::vector<double> missing(rows * columns + bias);
      std::vector<float> bucket;
      const auto step = [&](bool zero, unsigned number) {
        bucket = gradients(comm.rank(), number);
        if (zero) std::fill(bucket.begin(), bucket.end(), 0.0F);
        for (Rank rank = 0; rank < 3 && !zero; ++rank) {
          const auto values = gradients(rank, number);
          for (std::size_t i = 0; i < values.size(); ++i) missing[i] += static_cast<double>(values[i]) / 3;
        }
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        for (std::size_t i = 0; i < bucket.size(); ++i) missing[i] -= static_cast<double>(bucket[i]);
        double squares = 0;
        for (const double value : missing) squares += value * value;
        return std::sqrt(squares);
      };
      double before = 0, after = 0;
      for (unsigned number = 0; number < 6; ++number) before = step(false, number);
      for (unsigned number = 0; number < 60; ++number) after = step(true, 0);
      EXPECT_GT(before, 0.1) << spec;
      EXPECT_LT(after, 0.02 * before) << spec;
      std::vector<float> all(3 * bucket.size());
      comm.all_gather(bucket, all);
      for (std::size_t rank = 0; rank < 3; ++rank)
        EXPECT_EQ(0, std::memcmp(all.data() + rank * bucket.size(), bucket.data(), bucket.size() * sizeof(float)));
    });
}

TEST(LowRank, FactorsInFp16AreAveragesAndNotCutOffSums) {
  for (const Rank world : {3, 4})
    run_ranks(world, [&](Communicator& comm) {
      auto bucket = gradients(comm.rank(), 0);
      const auto small = bucket.begin() + rows * columns;
      std::fill(small, bucket.end(), 30000.0F);
      make_exchange("powersgd:1+fp16", comm)->start({.values = bucket, .tensors = tensors})->wait();
      for (auto value = small; value != bucket.end(); ++value) EXPECT_NEAR(*value, 30000, 30000 * 0x1p-10);
    });
}

TEST(LowRank, SendsTheFactorsOnly) {
  run_ranks(2, [](Communicator& comm) {
    for (const auto& [spec, floats] :
         {std::pair("powersgd:2", 2 * (rows + columns) + bias), {"acpsgd:2", 2 * rows + bias}}) {
      const auto exchange = make_exchange(spec, comm);
      auto bucket = gradients(comm.rank(), 0);
      const auto before = comm.traffic().bytes_sent;
      exchange->start({.values = bucket, .tensors = tensors})->wait();
      EXPECT_EQ(comm.traffic().bytes_sent - before, floats * sizeof(float)) << spec;
    }
  });
}

// The factors of a step's first, or only, average are added up in transit, as they are coded. Of the others, which
// follow from them, ranks have no common order.
TEST(LowRank, WhatGoesFirstIsAnOrdinaryAllReduce) {
  struct Try {
    std::string_view spec, call;
    bool messages;
  };
  for (const Try& each : {Try{"acpsgd:2", "all_reduce f32", false}, Try{"acpsgd:2+bf16", "all_reduce bf16", false},
                          Try{"powersgd:2+bf16", "all_reduce bf16", true}})
    run_ranks(3, [&](Communicator& comm) {
      const auto exchange = make_exchange(each.spec, comm);
      auto bucket = gradients(comm.rank(), 0), other = gradients(comm.rank(), 1);
      const std::vector<Tensor> others{{.id = 3, .rows = rows, .columns = columns}, {.id = 4, .rows = bias}};
      for (int step = 0; step < 2; ++step) {
        const auto one = exchange->start({.values = bucket, .tensors = tensors});
        const auto two = exchange->start({.values = other, .tensors = others});
        two->wait();
        one->wait();
      }
      EXPECT_THAT(comm.flight_record(), testing::HasSubstr(std::string(each.call))) << each.spec;
      EXPECT_EQ(comm.flight_record().find("send") != std::string::npos, each.messages)
          << each.spec << comm.flight_record();
    });
}

// 10 x 12 at rank 4 would be 88 factors of 120 values, more than a third: one column is what pays. 4 x 4 goes plain.
TEST(LowRank, SmallMatricesTakeALowerRank) {
  run_ranks(2, [](Communicator& comm) {
    const auto exchange = make_exchange("powersgd:4", comm);
    std::vector<float> bucket = normal_values(136, 1);
    const std::vector<Tensor> small{{.id = 1, .rows = 10, .columns = 12}, {.id = 2, .rows = 4, .columns = 4}};
    const auto before = comm.traffic().bytes_sent;
    exchange->start({.values = bucket, .tensors = small})->wait();
    EXPECT_EQ(comm.traffic().bytes_sent - before, (10 + 12 + 16) * sizeof(float));
  });
}

// The convolutional network of `ranvier train`: factors of 96,000 of its 102,130 parameters, and of the others, which
// biases and small matrices are, as much as pays. A twentieth of the floats is what powersgd:4 promises of it.
TEST(LowRank, OfTheDemoModelATwentiethIsSent) {
  const std::vector<Tensor> model{{.id = 1, .rows = 16, .columns = 9},    {.id = 2, .rows = 16},
                                  {.id = 3, .rows = 32, .columns = 144},  {.id = 4, .rows = 32},
                                  {.id = 5, .rows = 120, .columns = 800}, {.id = 6, .rows = 120},
                                  {.id = 7, .rows = 10, .columns = 120},  {.id = 8, .rows = 10}};
  constexpr std::size_t parameters = 102'130;
  constexpr std::size_t factors = (16 + 9) + 4 * (32 + 144) + 4 * (120 + 800) + 3 * (10 + 120), biases = 178;
  static_assert(20 * (factors + biases) <= parameters);
  for (const std::string_view spec : {"powersgd:4", "powersgd:4+bf16"})
    run_ranks(2, [&](Communicator& comm) {
      const std::size_t bytes = spec == "powersgd:4" ? sizeof(float) : sizeof(float) / 2;
      auto bucket = normal_values(parameters, static_cast<unsigned>(comm.rank()));
      const auto exchange = make_exchange(spec, comm);
      const auto before = comm.traffic().bytes_sent;
      exchange->start({.values = bucket, .tensors = model})->wait();
      EXPECT_EQ(comm.traffic().bytes_sent - before, (factors + biases) * bytes) << spec;
    });
}

TEST(LowRank, ABucketThatBeginsWithTheFirstTensorOfAnotherOneHasFactorsOfItsOwn) {
  run_ranks(2, [&](Communicator& comm) {
    const auto exchange = make_exchange("powersgd:2", comm);
    auto bucket = gradients(comm.rank(), 0);
    exchange->start({.values = bucket, .tensors = tensors})->wait();
    for (const Tensor& other : {Tensor{.id = 3, .rows = 100}, Tensor{.id = 4, .rows = 3}}) {
      bucket = gradients(comm.rank(), 1);
      bucket.resize(rows * columns + other.size());
      const auto tail = bucket.begin() + rows * columns;
      std::fill(tail, bucket.end(), static_cast<float>(comm.rank()));
      exchange->start({.values = bucket, .tensors = std::vector<Tensor>{tensors[0], other}})->wait();
      EXPECT_EQ(std::vector<float>(tail, bucket.end()), std::vector<float>(other.size(), 0.5F));
    }
  });
}

TEST(LowRank, WhatIsNotFiniteGoesPlainAndSpoilsNothing) {
  for (const std::string_view spec : {"powersgd:1", "acpsgd:1"})
    run_ranks(3, [&](Communicator& comm) {
      const auto exchange = make_exchange(spec, comm);
      for (unsigned step = 0; step < 5; ++step) {
        auto bucket = gradients(comm.rank(), step);
        if (step == 1 && comm.rank() == 2) bucket[100] = NAN;
        if (step == 2 && comm.rank() == 0) bucket.back() = INFINITY;
        exchange->start({.values = bucket, .tensors = tensors})->wait();
        for (std::size_t i = 0; i < bucket.size(); ++i) {
          if (step == 1 && i == 100)
            EXPECT_TRUE(std::isnan(bucket[i]));
          else if (step == 2 && i + 1 == bucket.size())
            EXPECT_EQ(bucket[i], INFINITY);
          else
            ASSERT_TRUE(std::isfinite(bucket[i])) << i << " in step " << step;
        }
      }
      EXPECT_EQ(exchange->plain_buckets(), 2U);
    });
}

}  // namespace
}  // namespace ranvier
