#include "ranvier/unequal_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/error.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

UnequalWorkers workers_of(std::string_view speeds, std::string_view jitter, std::string_view straggle) {
  UnequalWorkers workers;
  if (!speeds.empty()) take_speeds(speeds, workers);
  if (!jitter.empty()) take_jitter(jitter, workers);
  if (!straggle.empty()) take_stragglers(straggle, workers);
  return workers;
}

std::vector<double> first_steps(const UnequalWorkers& workers, std::uint64_t worker, std::uint64_t steps) {
  Slowness slowness(workers, worker, 0);
  std::vector<double> times;
  for (std::uint64_t step = 0; step < steps; ++step) times.push_back(slowness.of(step));
  return times;
}

TEST(UnequalWorkers, AreAsSlowAsTheWordsSay) {
  EXPECT_FALSE(UnequalWorkers{}.any());
  const UnequalWorkers workers = workers_of("1,0.5", "", "1:1-3x2,0:2-3x8,1:2-4x3");
  EXPECT_TRUE(workers.any());
  EXPECT_THAT(first_steps(workers, 0, 5), ElementsAre(1, 1, 8, 1, 1));
  EXPECT_THAT(first_steps(workers, 1, 5), ElementsAre(2, 4, 12, 6, 2));
  EXPECT_THAT(first_steps(workers, 2, 3), ElementsAre(1, 1, 1));
}

TEST(UnequalWorkers, AreLateByChanceEachInItsOwnSteps) {
  const UnequalWorkers workers = workers_of("", "0.25x4", "");
  const auto first = first_steps(workers, 0, 4000);
  EXPECT_EQ(first, first_steps(workers, 0, 4000));
  EXPECT_NE(first, first_steps(workers, 1, 4000));
  const auto late = std::ranges::count(first, 4.0);
  EXPECT_EQ(late + std::ranges::count(first, 1.0), 4000);
  EXPECT_NEAR(static_cast<double>(late), 1000, 120);  // 4.4 standard deviations, of one seed
  EXPECT_THAT(first_steps(workers_of("", "1x3", ""), 5, 3), ElementsAre(3, 3, 3));
}

TEST(UnequalWorkers, WrongWordsGetOneSentence) {
  for (const std::string_view words : {"", "1,", ",1", "0", "1;1", "1,1.5", "1,-1", "nan", "1 ,1"})
    EXPECT_THAT(support::refusal([&] {
                  UnequalWorkers workers;
                  take_speeds(words, workers);
                }),
                HasSubstr("such as 1,1,0.5,0.25"))
        << words;
  for (const std::string_view words : {"", "0.1", "x4", "0.1x", "1.1x4", "-0.1x4", "0.1x0.5", "0.1x1e9", "0.1x4x4"})
    EXPECT_THAT(support::refusal([&] {
                  UnequalWorkers workers;
                  take_jitter(words, workers);
                }),
                HasSubstr("write 0.05x4"))
        << words;
  for (const std::string_view words : {"", "2", "2:1-2", "2:1x4", "2:2-2x4", "2:3-2x4", "-1:1-2x4", "2:1-2x0.5",
                                       "2:1-2x4,", "2:1-2x4;3:1-2x4", "a:1-2x4"})
    EXPECT_THAT(support::refusal([&] {
                  UnequalWorkers workers;
                  take_stragglers(words, workers);
                }),
                HasSubstr("write 2:100-200x4"))
        << words;
  EXPECT_THAT(support::refusal([] { check_workers(workers_of("1,1,1", "", ""), 2); }), HasSubstr("3 numbers for 2"));
  EXPECT_THAT(support::refusal([] { check_workers(workers_of("", "", "2:0-1x2"), 2); }), HasSubstr("rank 2 of 2"));
  EXPECT_NO_THROW(check_workers(workers_of("1,1", "", "1:0-1x2"), 2));
  EXPECT_NO_THROW(check_workers(workers_of("1,1", "", ""), 3)) << "1 where the list ends";
  EXPECT_THAT(support::refusal([] { check_speeds(workers_of("1,1", "", ""), 3); }), HasSubstr("2 numbers for 3"));
  EXPECT_THAT(support::refusal([] { check_speeds(workers_of("1", "", ""), 3); }), HasSubstr("1 number for 3"));
  EXPECT_NO_THROW(check_speeds(workers_of("1,1", "", ""), 2));
  EXPECT_NO_THROW(check_speeds(workers_of("", "", ""), 2));
}

}  // namespace
}  // namespace ranvier
