// A shape that comes again allocates nothing: counted by operator new, on the thread that calls. And what follows where
// there is no memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "engine/operation_pool.h"
#include "ranvier/error.h"
#include "support/cluster.h"
#include "support/refusal.h"

namespace {
thread_local std::size_t allocations = 0;
// Aligned memory of so many bytes or more there is none of, on any thread: scratch memory is what is tried.
constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
std::atomic<std::size_t> refused_bytes = unlimited;
// Other memory likewise, on one thread.
thread_local std::size_t refused_here = unlimited;
}  // namespace

// Neither is inlined: malloc() met by operator delete, or the other way round, looks like a mistake to the compiler.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (bytes >= refused_here) throw std::bad_alloc();
  if (void* const memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  ++allocations;
  if (bytes >= refused_bytes) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) == 0 ? memory : nullptr;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* const memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace ranvier {
namespace {

struct Refusing {
  Refusing() { refused_bytes = 1 << 20; }
  ~Refusing() { refused_bytes = unlimited; }
};

class Allocations : public testing::TestWithParam<std::string_view> {};

// The fewest of several runs, for one that takes long on a busy machine tells its neighbours so, and that allocates.
template <class Body>
std::size_t fewest_in(const Body& body) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::size_t before = allocations;
    body();
    fewest = std::min(fewest, allocations - before);
  }
  return fewest;
}

TEST(CountedAllocations, are_counted) {
  const std::size_t before = allocations;
  const std::vector<int> memory(100);
  EXPECT_EQ(allocations, before + 1);
}

TEST_P(Allocations, of_blocking_calls_are_none_once_their_shape_is_known) {
  const auto body = [](Communicator& comm) {
    const auto world = static_cast<std::size_t>(comm.world());
    for (const std::size_t count : {1, 1000, 300'000}) {
      std::vector<float> all(count * world, 0);
      std::vector<float> part(count, 0);
      std::vector<float> result(count, 0);
      std::vector<float> transposed(count * world, 0);
      std::vector<float> halo(2 * count, 0), around(2 * count, 0);
      const auto shared = comm.allocate(count * sizeof(float));
      const TypedSpan lent(shared.get(), count, DType::f32);
      const auto each_once = [&] {
        comm.all_reduce(part);
        comm.all_reduce(lent);
        comm.all_reduce(part, {.algorithm = "ring", .priority = 1});
        comm.broadcast(part, 0);
        comm.reduce(part, result, 0);
        comm.all_gather(part, all);
        comm.reduce_scatter(all, part);
        comm.all_to_all(all, transposed);
        comm.gather(part, all, 0);
        comm.scatter(all, part, 0);
        comm.neighbor_exchange(halo, around);
        comm.barrier();
      };
      each_once();
      // Every lane once more, for each has scratch memory of its own.
      for (int i = 0; i < collective_lanes; ++i) each_once();
      EXPECT_EQ(fewest_in(each_once), 0u) << count << " elements";
    }
  };
  for (const Rank world : {2, 3}) support::run_ranks(world, body, {.way = GetParam()});
}

// Rank r has r elements more than rank 0, and to rank s s more than to rank 0.
TEST_P(Allocations, of_blocking_calls_with_parts_of_different_sizes_are_none_either) {
  support::run_ranks(
      3,
      [](Communicator& comm) {
        constexpr std::size_t count = 1000;
        const auto rank = static_cast<std::size_t>(comm.rank());
        const std::vector<std::size_t> of_ranks{count, count + 1, count + 2};
        const std::vector<std::size_t> to_ranks{count + rank, count + rank + 1, count + rank + 2};
        std::vector<float> all(3 * count + 3, 0), part(count + rank, 0);
        std::vector<float> sent(3 * (count + rank) + 3, 0), received(sent.size(), 0);
        const auto each_once = [&] {
          for (const Collective collective : {Collective::all_gather, Collective::gather})
            comm.run({.collective = collective, .input = part, .output = all, .output_splits = of_ranks});
          for (const Collective collective : {Collective::reduce_scatter, Collective::scatter})
            comm.run({.collective = collective, .input = all, .output = part, .input_splits = of_ranks});
          comm.run({.collective = Collective::all_to_all,
                    .input = sent,
                    .output = received,
                    .input_splits = to_ranks,
                    .output_splits = to_ranks});
        };
        for (int i = 0; i <= collective_lanes; ++i) each_once();
        EXPECT_EQ(fewest_in(each_once), 0u);
      },
      {.way = GetParam()});
}

// But where ranks agree on something, which are a few operations of a shape.
TEST_P(Allocations, of_blocking_calls_are_none_where_auto_learns_either) {
  auto options = support::ClusterOptions::patient();
  options.learn = true;
  support::run_ranks(3,
                     [](Communicator& comm) {
                       std::vector<float> data(100, 0);
                       const auto once = [&] { comm.all_reduce(data); };
                       int operations = 0;
                       const auto go_on_to = [&](int last) {
                         for (; operations < last; ++operations) once();
                       };
                       // Some of the first ones, and then of those that are timed for an agreement at operation 50.
                       go_on_to(29);
                       EXPECT_EQ(fewest_in(once), 0u);
                       EXPECT_EQ(fewest_in(once), 0u) << "timed";
                       operations += 10;
                       go_on_to(90);
                       EXPECT_EQ(fewest_in(once), 0u) << "of what was learned";
                     },
                     {.way = GetParam(), .communicator = options});
}

// One after the other, and several at a time, as buckets of gradients are.
TEST_P(Allocations, of_started_operations_are_none_either) {
  support::run_ranks(2,
                     [](Communicator& comm) {
                       for (const std::size_t count : {10, 1'000'000}) {
                         std::array<std::vector<float>, 6> buckets;
                         for (auto& bucket : buckets) bucket.assign(count, 0);
                         std::array<Work, buckets.size()> works;
                         const auto each_once = [&] {
                           for (std::size_t i = 0; i < buckets.size(); ++i)
                             works[i] = comm.start({.input = buckets[i], .output = buckets[i]});
                           for (Work& work : works) std::exchange(work, {}).wait();
                         };
                         for (int i = 0; i <= collective_lanes; ++i) each_once();
                         EXPECT_EQ(fewest_in(each_once), 0u) << count << " elements";
                       }
                     },
                     {.way = GetParam()});
}

// Its memory is not used again as long as somebody may ask it.
TEST_P(Allocations, are_of_started_operations_whose_handles_are_kept) {
  support::run_ranks(2,
                     [](Communicator& comm) {
                       std::vector<Work> works(3 * engine::OperationPool::most_kept);
                       std::vector<float> data(10, 0);
                       for (Work& work : works) {
                         work = comm.start({.input = data, .output = data});
                         work.wait();
                       }
                       for (std::size_t i = 0; i < works.size(); ++i) {
                         EXPECT_TRUE(works[i].done());
                         EXPECT_EQ(works[i].sequence(), i);
                       }
                     },
                     {.way = GetParam()});
}

// The driver has its seat free again, so that the operation ends, the next one is refused, and the communicator closes.
TEST_P(Allocations, of_scratch_memory_that_there_is_not_fail_the_operation) {
  const Refusing refusing;
  for (const bool started : {false, true})
    support::run_ranks(2,
                       [started](Communicator& comm) {
                         std::vector<float> data(1 << 20, 1);
                         const Request request{.input = data, .output = data, .algorithm = "recursive_doubling"};
                         const std::string told = support::refusal(
                             [&] { started ? comm.start(request).wait() : comm.run(request); }, ErrorKind::config);
                         EXPECT_THAT(told, testing::HasSubstr("no memory for 4194304 bytes of scratch"));
                         support::refusal([&] { comm.barrier(); }, ErrorKind::config);
                       },
                       {.way = GetParam()});
}

// The others are told at once, and this rank's next call is refused too: its place among the others' calls is empty.
TEST(AllocationsOfSumsWithBoundedLoss, that_there_are_not_fail_all_ranks) {
  support::run_ranks(2,
                     [](Communicator& comm) {
                       std::vector<float> data(1 << 20, 1);
                       const std::string told = support::refusal(
                           [&] {
                             refused_here = comm.rank() == 1 ? 1 << 20 : unlimited;
                             try {
                               comm.run({.input = data, .output = data, .tolerates_loss = true});
                             } catch (...) {
                               refused_here = unlimited;
                               throw;
                             }
                           },
                           ErrorKind::config);
                       EXPECT_THAT(told, testing::HasSubstr("rank 1 has no memory for a sum of 1048576 values"));
                       support::refusal([&] { comm.barrier(); }, ErrorKind::config);
                     },
                     {.way = "udp:loss=0.01"});
}

TEST(AllocationsForAProgram, that_there_are_not_are_refused) {
  const Refusing refusing;
  support::run_ranks(2,
                     [](Communicator& comm) {
                       EXPECT_THAT(support::refusal([&] { comm.allocate(1 << 20); }, ErrorKind::config),
                                   testing::HasSubstr("has no memory for 1048576 bytes"));
                       comm.barrier();
                     },
                     {.way = "tcp"});
}

INSTANTIATE_TEST_SUITE_P(, Allocations, testing::Values("loopback", "shm", "tcp", "udp", "sealed"),
                         [](const auto& way) { return std::string(way.param); });

}  // namespace
}  // namespace ranvier
