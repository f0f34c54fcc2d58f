// Messages that come before the one that a rank waits for, and are as large as memory or larger; and receives from any
// rank of which no sender is left.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <latch>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/aside_limit.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "support/cluster.h"
#include "support/refusal.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::refusal;
using testing::AllOf;
using testing::HasSubstr;

// Zeros that take no memory as long as they are only read.
class Zeros {
 public:
  explicit Zeros(std::size_t bytes)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Zeros() { munmap(data_, bytes_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;

  ConstTypedSpan span(std::size_t count) const { return {data_, count, DType::u8}; }

 private:
  const std::size_t bytes_;
  void* const data_;
};

TEST(Messages, that_a_later_one_overtakes_may_be_larger_than_a_gibibyte) {
  if (support::sanitized) GTEST_SKIP() << "sanitizers keep several bytes for each of them";
  constexpr std::size_t large = (std::size_t{1} << 30) + 4096;
  const Zeros zeros(large);
  support::run_ranks(2, [&](Communicator& comm) {
    float small = 1;
    if (comm.rank() == 0) {
      Work first = comm.start_send(zeros.span(large), 1, 1);
      small = 7;
      comm.send(ConstTypedSpan(&small, 1, DType::f32), 1, 2);
      first.wait();
    } else {
      comm.recv(TypedSpan(&small, 1, DType::f32), 0, 2);
      EXPECT_EQ(small, 7);
    }
    comm.barrier();
  });
}

TEST(Messages, for_which_there_is_no_memory_are_refused) {
  if (support::sanitized) GTEST_SKIP() << "sanitizers end a program that asks for so much";
  constexpr std::size_t endless = std::size_t{1} << 40;
  const Zeros zeros(endless);
  support::run_ranks(2,
                     [&](Communicator& comm) {
                       float small = 0;
                       if (comm.rank() == 0) {
                         EXPECT_THROW(comm.start_send(zeros.span(endless), 1, 1).wait(), Error);
                       } else {
                         EXPECT_THAT(
                             refusal([&] { comm.recv(TypedSpan(&small, 1, DType::f32), 0, 2); }, ErrorKind::mismatch),
                             AllOf(HasSubstr("rank 0 sent 1099511627776 B with tag 1 before what rank 1 waits for"),
                                   HasSubstr("no memory to keep it")));
                       }
                     },
                     {.way = "tcp"});
}

constexpr std::string_view ways_that_tell_who_left[] = {"tcp", "shm", "udp"};

// So that a wait in vain would end otherwise; nobody but whoever waits drives.
support::ClusterOptions bounded(std::string_view way) {
  support::ClusterOptions options{.way = way};
  options.communicator.timeout = 20s;
  options.communicator.background_progress = false;
  return options;
}

TEST(Messages, from_any_rank_are_waited_for_no_longer_than_there_is_one) {
  for (const std::string_view way : ways_that_tell_who_left) {
    SCOPED_TRACE(way);
    support::run_ranks(
        3,
        [](Communicator& comm) {
          if (comm.rank() != 0) return comm.leave();
          std::vector<float> never(3);
          EXPECT_THAT(refusal([&] { comm.recv(never, Communicator::any_rank, 0); }, ErrorKind::peer_lost),
                      AllOf(HasSubstr("left the job"), HasSubstr("recv of 12 B from any rank")));
        },
        bounded(way));
  }
}

TEST(Messages, that_were_put_aside_are_received_though_their_sender_has_left) {
  for (const std::string_view way : ways_that_tell_who_left) {
    SCOPED_TRACE(way);
    support::run_ranks(
        2,
        [](Communicator& comm) {
          std::vector<float> first{1}, second{2}, never(1);
          if (comm.rank() == 1) {
            comm.send(first, 0, 1);
            comm.send(second, 0, 2);
            return comm.leave();
          }
          first = second = {0};
          std::this_thread::sleep_for(300ms);  // both are here, and with tcp the end of the link as well
          Work lacking = comm.start_recv(never, Communicator::any_rank, 9);
          comm.recv(second, Communicator::any_rank, 2);
          comm.recv(first, Communicator::any_rank, 1);
          EXPECT_EQ(first, std::vector<float>{1});
          EXPECT_EQ(second, std::vector<float>{2});
          EXPECT_THAT(refusal([&] { lacking.wait(); }, ErrorKind::peer_lost), HasSubstr("left the job"));
        },
        bounded(way));
  }
}

// Whatever was posted before it, and has lost all its senders in the same moment.
TEST(Messages, that_have_come_are_received_before_another_receive_fails) {
  support::run_ranks(
      2,
      [](Communicator& comm) {
        std::vector<float> sent{2}, never(1), neither(1);
        if (comm.rank() == 1) {
          comm.send(sent, 0, 2);
          return comm.leave();
        }
        sent = {0};
        std::this_thread::sleep_for(300ms);
        Work lacking = comm.start_recv(never, Communicator::any_rank, 8);
        Work as_well = comm.start_recv(neither, Communicator::any_rank, 9);
        comm.recv(sent, Communicator::any_rank, 2);
        EXPECT_EQ(sent, std::vector<float>{2});
        for (Work* work : {&lacking, &as_well})
          EXPECT_THAT(refusal([&] { work->wait(); }, ErrorKind::peer_lost), HasSubstr("left the job"));
      },
      bounded("tcp"));
}

TEST(Messages, whose_sender_left_in_their_middle_are_not_waited_for_though_others_are_there) {
  for (const std::string_view way : {"tcp", "shm"}) {
    SCOPED_TRACE(way);
    std::latch left(1);
    support::run_ranks(
        3,
        [&](Communicator& comm) {
          std::vector<float> large(comm.rank() < 2 ? 16 << 20 : 0), never(1);
          if (comm.rank() == 1) {
            Work sending = comm.start_send(large, 0, 5);
            sending.wait_for(100ms);
            comm.leave();
            return left.count_down();
          }
          // The other one learns it from rank 0.
          const std::string why = refusal(
              [&] {
                if (comm.rank() == 2) comm.recv(never, 0, 6);
                left.wait();
                comm.recv(large, Communicator::any_rank, 5);
              },
              ErrorKind::peer_lost);
          EXPECT_THAT(why, HasSubstr("rank 1 left the job while rank 0"));
        },
        bounded(way));
  }
}

TEST(AsideLimit, is_half_of_the_memory_that_is_left) {
  constexpr std::size_t step = engine::AsideLimit::step;
  std::size_t available = 8 * step;
  int asked = 0;
  engine::AsideLimit limit([&] { return ++asked, available; });
  EXPECT_TRUE(limit.take(step));
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(limit.take(3 * step));
  EXPECT_FALSE(limit.take(1));
  EXPECT_TRUE(limit.take(0));
  limit.give_back(3 * step);
  EXPECT_TRUE(limit.take(3 * step));
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(limit.take(~std::size_t{0}));
  limit.give_back(2 * step);
  available = 5 * step;  // others have taken some
  EXPECT_FALSE(limit.take(step));
  EXPECT_TRUE(limit.take(step / 4));
}

TEST(AsideLimit, knows_what_the_host_has) {
  EXPECT_GT(available_memory_bytes().value(), 0U);
  EXPECT_LT(available_memory_bytes().value(), std::size_t{1} << 50);
}

}  // namespace
}  // namespace ranvier
