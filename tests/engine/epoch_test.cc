// Ranks of different lives of a job do not take part in each other's: what is left of an older one is refused by name.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "support/on_threads.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

CommunicatorOptions of_epoch(Rank rank) {
  return {.measure = false, .timeout = 20s, .join_timeout = 20s, .epoch = static_cast<Epoch>(rank)};
}

TEST(Epoch, OfAnotherRankIsRefusedWhereTheyMeet) {
  const auto store = memory_store();
  support::on_threads(2, [&](Rank rank) {
    EXPECT_EQ(support::refusal([&] { Communicator::connect(*store, rank, 2, of_epoch(rank)); }, ErrorKind::mismatch),
              "rank 0 has epoch '0' and rank 1 has '1'; give all ranks the same");
  });
}

// What rank 1 says of a call in epoch 1, where rank 0 is in epoch 0. Rank 0 only sends: it waits for nobody.
std::string told(const std::function<void(Communicator&)>& call, const std::function<void(Communicator&)>& of_older) {
  auto transports = loopback_world(2);
  std::string sentence;
  support::on_threads(2, [&](Rank rank) {
    const auto comm = Communicator::over(std::move(transports[static_cast<std::size_t>(rank)]), of_epoch(rank));
    if (rank == 0) return of_older(*comm);
    sentence = support::refusal([&] { call(*comm); }, ErrorKind::mismatch);
  });
  return sentence;
}

TEST(Epoch, OfACollectiveIsComparedBeforeItsDataIsUsed) {
  std::vector<float> data(64, 1), older(64, 7);
  const std::string sentence =
      told([&](Communicator& comm) { comm.broadcast(data, 0); }, [&](Communicator& comm) { comm.broadcast(older, 0); });
  EXPECT_THAT(sentence, HasSubstr("rank 1 runs broadcast #0"));
  EXPECT_THAT(sentence, HasSubstr("epoch 1)"));
  EXPECT_THAT(sentence, HasSubstr("epoch 0)"));
  EXPECT_THAT(data, testing::Each(1));
}

TEST(Epoch, OfAMessageIsComparedBeforeItsDataIsUsed) {
  std::vector<float> data(64, 1), older(64, 7);
  const std::string sentence =
      told([&](Communicator& comm) { comm.recv(data, 0); }, [&](Communicator& comm) { comm.send(older, 1); });
  EXPECT_THAT(sentence, HasSubstr("rank 1 expects 256 B of f32 from rank 0 with tag 0"));
  EXPECT_THAT(sentence, HasSubstr("rank 1 in epoch 1 and rank 0 in epoch 0"));
  EXPECT_THAT(data, testing::Each(1));
}

}  // namespace
}  // namespace ranvier
