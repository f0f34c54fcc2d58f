// Ranks that wait for each other in different places: a certain deadlock cannot be told from a thread that is late, so
// it ends by a timeout, whose error says on every rank where the other one is instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "conformance/errors.h"
#include "conformance/worlds.h"

namespace ranvier::conformance {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A second of it, which is a quarter, is there for the answers, also on a machine that has other things to do.
constexpr auto timeout = 4000ms;

class Order : public Ways {};

std::string in(const std::string& call, Rank rank) {
  return rank_name(rank) + " has not called it, and has been in " + call;
}

TEST_P(Order, of_groups_that_differs_is_told_on_both_ranks) {
  run(2, [](Communicator& comm) {
    const auto a = comm.split(0), b = comm.split(0);
    a->barrier();  // so that the numbers differ
    const Rank self = comm.rank(), other = 1 - self;
    std::vector<float> data(10);
    const auto error = error_of([&] { (self == 0 ? a : b)->all_reduce(data, {.timeout = timeout}); });
    const std::string ours = self == 0 ? "all_reduce #1 (f32 x 10, sum) of group 'color 0 of split 0'"
                                       : "all_reduce #0 (f32 x 10, sum) of group 'color 0 of split 1'";
    EXPECT_THAT(error,
                throws(ErrorKind::timeout, rank_name(self) + " waited 4 s for " + rank_name(other) + " in " + ours));
    EXPECT_THAT(error, throws(ErrorKind::timeout, in(self == 0 ? "all_reduce #0 of group 'color 0 of split 1' for "
                                                               : "all_reduce #1 of group 'color 0 of split 0' for ",
                                                     other)));
    EXPECT_THAT(error, throws(ErrorKind::timeout, "which " + rank_name(self) +
                                                      " has not called; call both in the same order on every rank"));
    EXPECT_EQ(error->culprit(), other);
    comm.barrier();
  });
}

// By then the first one has failed, and with it what the other one would have to be told.
TEST_P(Order, of_groups_is_told_to_a_rank_that_came_later_too) {
  run(2, [](Communicator& comm) {
    const auto a = comm.split(0), b = comm.split(0);
    std::vector<float> data(10);
    if (comm.rank() == 1) std::this_thread::sleep_for(timeout / 2);
    const auto error = error_of([&] { (comm.rank() == 0 ? a : b)->all_reduce(data, {.timeout = timeout}); });
    if (comm.rank() == 0) {
      EXPECT_THAT(error, throws(ErrorKind::timeout, in("all_reduce #0 of group 'color 0 of split 1'", 1)));
    } else {
      EXPECT_THAT(error, throws(ErrorKind::timeout, in("barrier #", 0)));
      EXPECT_THAT(error, throws(ErrorKind::timeout,
                                " s after all_reduce #0 (f32 x 10, sum) of group 'color 0 of split 0' failed)"));
      EXPECT_THAT(error, throws(ErrorKind::timeout, " s before, group 'color 0 of split 0' failed: rank 0 waited 4 s"));
    }
    comm.barrier();
  });
}

TEST_P(Order, of_groups_in_a_circle_is_told_along_the_circle) {
  run(3, [](Communicator& comm) {
    const Rank self = comm.rank(), next = (self + 1) % 3;
    std::vector<std::unique_ptr<Communicator>> pairs;
    for (Rank first = 0; first < 3; ++first)
      pairs.push_back(comm.split(self == first || self == (first + 1) % 3 ? 0 : -1));
    const auto error = error_of([&] { pairs[static_cast<std::size_t>(self)]->barrier({.timeout = timeout}); });
    ASSERT_TRUE(error);
    const std::string name =
        pairs[static_cast<std::size_t>(self)]->rank_name(pairs[static_cast<std::size_t>(self)]->rank() == 0 ? 1 : 0);
    // Where that one has come to its end already, what failed there.
    EXPECT_THAT(error->what(), HasSubstr(name + " has not called it, and has been in "));
    EXPECT_THAT(error->what(), HasSubstr("barrier #0 of group 'color 0 of split " + std::to_string(next) + "' f"));
    EXPECT_THAT(error->what(), HasSubstr("; if neither can end before the other, change the order of the calls"));
    comm.barrier();
  });
}

TEST_P(Order, of_a_collective_and_a_message_is_told_on_both_ranks) {
  run(2, [](Communicator& comm) {
    const auto group = comm.split(0);
    std::vector<float> data(10);
    const auto error = error_of([&] {
      if (comm.rank() == 0)
        group->all_reduce(data, {.timeout = timeout});
      else
        group->start_recv(data, 0, 7, timeout).wait();
    });
    // Whichever is first tells both: it is one group.
    const bool first =
        error && std::string(error->what()).find("rank 0 waited 4 s for rank 1 in all_reduce #0") != std::string::npos;
    if (first)
      EXPECT_THAT(error, throws(ErrorKind::timeout, in("recv of 40 B from rank 0 of group", 1)));
    else
      EXPECT_THAT(error, throws(ErrorKind::timeout,
                                "rank 1 waited 4 s for rank 0 in recv of 40 B from rank 0 with tag 7 of group 'color 0 "
                                "of split 0'; rank 0 has been in all_reduce #0 of group 'color 0 of split 0' for "));
    comm.barrier();
  });
}

TEST_P(Order, of_messages_that_nobody_receives_is_told_on_both_ranks) {
  run(2, [](Communicator& comm) {
    const auto group = comm.split(0);
    const Rank self = comm.rank(), other = 1 - self;
    std::vector<float> data(std::size_t{16} << 20);
    const auto error = error_of([&] { group->start_send(data, other, 0, timeout).wait(); });
    for (const Rank rank : {0, 1})
      EXPECT_THAT(error, throws(ErrorKind::timeout, "send of 67108864 B to " + rank_name(rank)));
    EXPECT_THAT(error, throws(ErrorKind::timeout, " has been in send of 67108864 B to rank "));
    comm.barrier();
  });
}

// Most ranks wait for another one that is in the same all_reduce.
TEST_P(Order, names_the_rank_that_all_wait_for) {
  run(5, [](Communicator& comm) {
    const auto group = comm.split(0);
    std::vector<float> data(1000);
    const auto error = error_of([&] {
      if (comm.rank() == 2)
        group->start_recv(data, 4, 0, 60s).wait();
      else
        group->all_reduce(data, {.timeout = timeout, .algorithm = "ring"});
    });
    EXPECT_THAT(error, throws(ErrorKind::timeout, in("recv of 4000 B from rank 4 of group", 2)));
    EXPECT_EQ(error->culprit(), 2);
    comm.barrier();
  });
}

// It is asked for a second before the deadline, of which it leaves most to come; on a busy machine one attempt has to.
TEST_P(Order, is_nothing_that_a_rank_which_is_late_is_told_of) {
  run(2, [](Communicator& comm) {
    int in_time = 0;
    for (int attempt = 0; attempt < 5 && in_time == 0; ++attempt) {
      const auto group = comm.split(0);
      std::vector<float> data(10, 1);
      if (comm.rank() == 1) std::this_thread::sleep_for(timeout - 800ms);
      const auto error = error_of([&] { group->all_reduce(data, {.timeout = timeout}); });
      if (!error) {
        EXPECT_THAT(data, testing::Each(2.0F));
      }
      std::vector<std::int32_t> without_error{error ? 0 : 1};
      comm.all_reduce(without_error, {.op = ReduceOp::min});
      in_time = without_error[0];
    }
    EXPECT_EQ(in_time, 1);
  });
}

// Only the control plane has a part in it, which is the same for all.
INSTANTIATE_TEST_SUITE_P(, Order, testing::Values("shm", "tcp"), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
