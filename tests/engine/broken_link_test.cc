// A transport that fails while its driver sleeps in it: the driver's seat must be free again, or nobody is ever told.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Rank 0 of 2. Takes whatever is sent, delivers nothing, and finds out in wait() that rank 1 is gone.
class BrokenLink final : public Transport {
 public:
  Rank rank() const override { return 0; }
  Rank world() const override { return 2; }
  TransportTraits traits() const override {
    return {.name = "broken",
            .slice_bytes = 4096,
            .buffered_bytes = 4096,
            .ranks_per_core = 1,
            .polls_before_yield = 2,
            .polls_before_wait = 4};
  }
  std::size_t try_send(Rank, Lane, ConstBytes head, ConstBytes body) override { return head.size() + body.size(); }
  bool sent(Rank, Lane) override { return true; }
  ConstBytes try_recv(Rank, Lane, Bytes) override { return {}; }
  void release(Rank, Lane, std::size_t) override {}
  void wait(std::chrono::nanoseconds) override { throw Error(ErrorKind::peer_lost, "the link to rank 1 broke", 1); }
  void interrupt() override {}
  void cancel() override {}
};

template <typename Call>
void expect_blame(const Call& call, const char* words = "") {
  try {
    call();
    FAIL() << "nobody answered, and yet it ended";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_THAT(error.what(), HasSubstr("the link to rank 1 broke"));
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(BrokenLinkTest, ABlockingCallAndTheNextOneTell) {
  const auto comm = Communicator::over(std::make_unique<BrokenLink>(), {.timeout = 20s});
  std::vector<float> data(10);
  expect_blame([&] { comm->all_reduce(data); });
  expect_blame([&] { comm->all_reduce(data); });
}

TEST(BrokenLinkTest, OfNoTransportThereIsNoCommunicator) { EXPECT_THROW(Communicator::over(nullptr), Error); }

TEST(BrokenLinkTest, OfAGroupNamesTheRankOfTheWorld) {
  const auto comm = Communicator::over(std::make_unique<BrokenLink>(), {.timeout = 20s, .world_ranks = {4, 7}});
  std::vector<float> data(10);
  expect_blame([&] { comm->all_reduce(data); }, "rank 7 (1 of its group) is lost");
}

TEST(BrokenLinkTest, AStartedOperationTellsWhoeverWaitsAndWhoeverDoesNot) {
  const auto comm = Communicator::over(std::make_unique<BrokenLink>(), {.timeout = 20s});
  std::vector<float> data(10);
  Work work = comm->start({.input = data, .output = data});
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!work.done() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  ASSERT_TRUE(work.done()) << "the background thread kept the driver's seat";
  expect_blame([&] { work.wait(); });
  expect_blame([&] { comm->start({.input = data, .output = data}).wait(); });
}

}  // namespace
}  // namespace ranvier
