#include "bench/job.h"

#include <gtest/gtest.h>

#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

TEST(Job, IsTheSameAfterItsLineWasRead) {
  for (const auto collective : {Collective::all_reduce, Collective::send, Collective::barrier})
    for (const bool in_place : {false, true})
      for (const auto fill : {Fill::varied, Fill::zeros, Fill::ones}) {
        for (const char* const algorithm : {"", "torus:2x4"}) {
          const Job job{collective, DType::bf16, ReduceOp::bit_xor, 12345678901, in_place, 3, 1000, fill,
                        42,         2,           algorithm};
          EXPECT_EQ(job_from_line(to_line(job)), job) << to_line(job);
        }
      }
}

TEST(Job, RefusesLinesThatAreNoJob) {
  const std::string line = to_line(Job{.count = 8});
  for (const auto& wrong : {std::string(), std::string("stop"), line + " ring 1", line.substr(0, line.size() - 2),
                            "walk" + line.substr(3), line + "x"})
    EXPECT_THROW(job_from_line(wrong), Error) << wrong;
}

TEST(Job, GivesEveryRankAnEqualPartAndAtLeastOneElement) {
  EXPECT_EQ(job_count({.collective = Collective::all_reduce}, 4, 3), 1);
  EXPECT_EQ(job_count({.collective = Collective::all_reduce, .dtype = DType::f64}, 4, 3), 1);
  EXPECT_EQ(job_count({.collective = Collective::all_gather}, 4, 3), 3);
  EXPECT_EQ(job_count({.collective = Collective::all_gather}, 64, 3), 15);
  EXPECT_EQ(job_count({.collective = Collective::barrier}, 64, 3), 0);
}

TEST(Job, GivesEveryNeighbourAnEqualPart) {
  const auto count = [](const char* algorithm, Rank world) {
    return job_count({.collective = Collective::neighbor_exchange, .algorithm = algorithm}, 60, world);
  };
  EXPECT_EQ(count("", 8), 14) << "a line has two directions";
  EXPECT_EQ(count("neighbor_exchange:2x4", 8), 12);
  EXPECT_EQ(count("neighbor_exchange:2x2x2,periods=1x0x1", 8), 12);
  EXPECT_THROW(count("neighbor_exchange:2x4", 6), Error);
}

// The table of nccl-tests' PERFORMANCE.md.
TEST(Job, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::send, 4), 1);
}

TEST(Job, InPlaceBuffersHoldInputAndOutput) {
  for (const auto name : job_names()) {
    if (name == "barrier") continue;
    const auto collective = parse_collective(name).value_or(Collective::send);
    const Job job{.collective = collective, .count = 12, .in_place = true};
    for (Rank rank = 0; rank < 3; ++rank) {
      const Shape shape = shape_of(job, rank, 3);
      EXPECT_LE(shape.input_at + shape.input, shape.buffer) << name;
      EXPECT_LE(shape.output_at + shape.output, shape.buffer) << name;
    }
  }
}

}  // namespace
}  // namespace ranvier::bench
