// How many bytes a push copies, counted by operator new on the thread that pushes. A program of its own, which replaces
// that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "ranvier/parameter_server.h"
#include "support/cluster.h"

namespace {
thread_local std::size_t allocated = 0;  // bytes
}  // namespace

// None is inlined: malloc() met by operator delete, or the other way round, looks like a mistake to the compiler. And
// each that operator delete(void*) ends is here, or a sanitizer's own would be.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocated += bytes;
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ranvier {
namespace {

// Of two ranks that own a half each: the request with the other's half of the gradient; by several ranges this rank's
// own half too, one range behind the other, and the other's half of the parameters until it is spread.
TEST(ParameterServer, CopiesNothingThatItNeedNot) {
  constexpr std::size_t size = 1 << 20;
  constexpr std::size_t half = size / 2 * sizeof(float);
  for (const auto& [ranges, halves] : {std::pair<std::size_t, std::size_t>{0, 1}, {64, 3}})
    support::run_ranks(2,
                       [&, ranges = ranges, halves = halves](Communicator& comm) {
                         std::vector<float> parameters(size, 1);
                         const std::vector<float> gradient(size, 0);
                         ParameterServer server(comm, {.ranges = ranges}, parameters, 0);
                         comm.barrier();
                         if (comm.rank() == 1) {
                           for (int times = 0; times < 2; ++times) {
                             const std::size_t before = allocated;
                             server.exchange(gradient, {}, parameters);
                             EXPECT_LT(allocated - before, halves * half + half / 4) << ranges << " ranges";
                           }
                           EXPECT_EQ(parameters, std::vector<float>(size, 1));
                         }
                         comm.barrier();
                         server.leave();
                       },
                       {.way = "shm"});
}

}  // namespace
}  // namespace ranvier
