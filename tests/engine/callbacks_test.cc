// Callbacks that wait for what their own engine has yet to move, by means that it knows nothing of.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ranvier/callback.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;

// Far less than the watchdog of run_ranks gives, and far more than this takes on a busy machine.
constexpr auto soon = 30s;

// An all_reduce, and in its callback the next one, `depth` of them, each of which waits for the end of that. Whether
// they have ended.
std::future<bool> chain(Communicator& comm, int depth, bool drives) {
  const auto data = std::make_shared<std::vector<float>>(100, 1.0F);
  const auto ended = std::make_shared<std::promise<bool>>();
  Work work = comm.start({.collective = Collective::all_reduce, .input = *data, .output = *data});
  work.on_done([&comm, depth, data, ended] {
    bool well = data->front() == static_cast<float>(comm.world());
    if (depth > 1) {
      std::future<bool> rest = chain(comm, depth - 1, false);
      well &= rest.wait_for(soon) == std::future_status::ready && rest.get();
    }
    ended->set_value(well);
  });
  if (drives) work.wait();
  return ended->get_future();
}

// Whoever calls back is the background thread, or the caller that waits for the first operation.
TEST(Callbacks, MayWaitForFutures) {
  for (const char* const way : {"shm", "tcp"})
    for (const bool drives : {false, true})
      for (const Rank world : {2, 3})
        support::run_ranks(world,
                           [&](Communicator& comm) {
                             std::future<bool> all = chain(comm, 3, drives);
                             ASSERT_EQ(all.wait_for(soon), std::future_status::ready) << way << ", drives: " << drives;
                             EXPECT_TRUE(all.get());
                             comm.barrier();
                           },
                           {.way = way});
}

// Who waits for something else is not thrown it, and others are called all the same.
TEST(Callbacks, ThatThrowDisturbNobody) {
  support::run_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(100, 1), more(100, 1);
    std::promise<void> heard;
    Work first = comm.start({.collective = Collective::all_reduce, .input = data, .output = data});
    first.on_done([] { throw std::runtime_error("a callback's own trouble"); });
    first.on_done([] { throw 7; });
    first.on_done([&] { heard.set_value(); });
    EXPECT_NO_THROW(comm.all_reduce(more));
    EXPECT_EQ(more.back(), 2);
    EXPECT_NO_THROW(first.wait());
    ASSERT_EQ(heard.get_future().wait_for(soon), std::future_status::ready);
    EXPECT_FALSE(in_callback());
    comm.barrier();
  });
}

// What they wait for keeps its deadline, too.
TEST(Callbacks, ThatWaitForWhatNeverComesHearSoInTime) {
  std::promise<void> over;
  std::shared_future<void> is_over = over.get_future().share();
  support::run_ranks(2,
                     [&](Communicator& comm) {
                       std::vector<float> data(100, 1), never(1);
                       Work work = comm.start({.collective = Collective::all_reduce, .input = data, .output = data});
                       if (comm.rank() == 1) {
                         work.wait();
                         is_over.wait();
                         return;
                       }
                       const auto heard = std::make_shared<std::promise<ErrorKind>>();
                       work.on_done([&comm, &never, heard] {
                         const auto kind = std::make_shared<std::promise<ErrorKind>>();
                         Work receipt = comm.start_recv(never, 1, 7, 300ms);
                         receipt.on_done([receipt, kind] {
                           try {
                             std::rethrow_exception(receipt.error());
                           } catch (const Error& error) {
                             kind->set_value(error.kind());
                           }
                         });
                         heard->set_value(kind->get_future().get());
                       });
                       EXPECT_EQ(heard->get_future().get(), ErrorKind::timeout);
                       over.set_value();
                     },
                     {.way = "tcp"});
}

}  // namespace
}  // namespace ranvier
