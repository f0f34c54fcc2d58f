// Messages that come before the one that a rank waits for, and are as large as memory or larger.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstddef>
#include <vector>

#include "engine/aside_limit.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "support/cluster.h"
#include "support/refusal.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

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
