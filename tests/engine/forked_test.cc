// Processes that are forked off from a rank, such as a data loader's workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

bool says_so(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::usage &&
           std::string_view(error.what()).starts_with("this process was forked off after rank 0");
  }
  return false;
}

TEST(Forked, CallsInAChildSayThatTheCommunicatorStaysWithTheParentWhichGoesOn) {
  for (const std::string_view way : support::connected_ways())
    support::run_ranks(2,
                       [&](Communicator& comm) {
                         std::vector<float> values(100, 1.0F), received(1);
                         std::unique_ptr<Communicator> group = comm.split(0);
                         group->all_reduce(values);
                         if (comm.rank() == 1) {
                           comm.barrier();
                           comm.send(values, 0, 7);
                         } else {
                           Work work = comm.start_recv(received, 1, 8);
                           const pid_t child = fork();
                           if (child == 0) {
                             alarm(20);
                             const std::vector<std::function<void()>> calls{[&] { comm.all_reduce(values); },
                                                                            [&] { comm.start_recv(received, 1, 9); },
                                                                            [&] { comm.send(received, 1, 9); },
                                                                            [&] { work.wait(); },
                                                                            [&] { comm.split(0); },
                                                                            [&] { comm.leave(); },
                                                                            [&] { comm.allocate(1); }};
                             int wrong = 0;
                             for (std::size_t i = 0; i < calls.size(); ++i)
                               if (!says_so(calls[i])) wrong |= 1 << i;
                             group.reset();
                             _exit(wrong);
                           }
                           int status = -1;
                           ASSERT_EQ(waitpid(child, &status, 0), child);
                           EXPECT_EQ(status, 0) << way;
                           comm.barrier();
                           comm.recv(values, 1, 7);
                         }
                         group->all_reduce(values);
                         EXPECT_EQ(values[99], 4);
                         if (comm.rank() == 1) comm.send(std::span(values).first(1), 0, 8);
                         comm.barrier();
                       },
                       {.way = way});
}

}  // namespace
}  // namespace ranvier
