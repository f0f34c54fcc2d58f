// Ranks that cannot take part do not leave the others waiting.
#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

constexpr Rank world = 3;

// What each rank throws when rank 1 has `options` and the others have none.
std::array<std::string, world> told(const CommunicatorOptions& options) {
  const auto store = memory_store();
  std::array<std::string, world> sentences;
  const auto join = [&](Rank rank) {
    try {
      Communicator::connect(*store, rank, world, rank == 1 ? options : CommunicatorOptions{});
      ADD_FAILURE() << "rank " << rank << " met others";
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::timeout);
      sentences[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  const auto before = std::chrono::steady_clock::now();
  {
    const std::jthread first(join, 1), second(join, 2);
    join(0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::minutes(1)) << "and not the join timeout";
  return sentences;
}

void expect_all_told(const CommunicatorOptions& options, const std::string& problem) {
  const auto sentences = told(options);
  for (const std::string& sentence : sentences) EXPECT_THAT(sentence, HasSubstr(problem));
  for (const std::size_t other : {0, 2}) EXPECT_THAT(sentences[other], HasSubstr("rank 1 cannot take part: "));
}

TEST(Rendezvous, WhatOneRankCannotReadIsNewsToAll) {
  expect_all_told({.tuning = "/nowhere/table.txt"}, "cannot read the tuning table /nowhere/table.txt");
  expect_all_told({.security = {.key_file = "/nowhere/job.key"}}, "/nowhere/job.key");
}

TEST(Rendezvous, WhatOneRankMisspellsIsNewsToAll) {
  expect_all_told({.transport = "tpc"}, "unknown transport 'tpc'");
  expect_all_told({.topology = "tours:3"}, "'tours'");
}

}  // namespace
}  // namespace ranvier
