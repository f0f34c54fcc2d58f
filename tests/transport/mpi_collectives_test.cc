// MPI's own collectives where a program has started MPI so that only its main thread may call it: others' calls wait
// for that thread. A process of its own, which is a world of one.
#include "transport/mpi/mpi_collectives.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "transport/mpi/mpi_library.h"

namespace {

using namespace std::chrono_literals;

std::vector<int> begun;  // counts of elements, in the order of MPI's calls
bool only_by_main = true;

}  // namespace

// In place of the MPI library's.
extern "C" int MPI_Iallreduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  int main = 0;
  PMPI_Is_thread_main(&main);
  only_by_main = only_by_main && main != 0;
  begun.push_back(count);
  return PMPI_Iallreduce(input, output, count, type, op, comm, request);
}

namespace ranvier::transport {
namespace {

TEST(MpiCollectives, WaitForTheThreadThatMayCallMpi) {
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);  // no daemon of Open MPI's
  int threads = 0;
  ASSERT_EQ(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &threads), MPI_SUCCESS);
  ASSERT_EQ(threads, MPI_THREAD_FUNNELED);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  const auto collectives = mpi_collectives(MpiLibrary::get().communicator(deadline, [] {}), {0}, 1);
  std::array<float, 3> input{1, 2, 3}, output{};
  const auto call = [&](std::size_t count) {
    return VendorCall{.input = input.data(), .output = output.data(), .count = count};
  };
  VendorCollectives::Transfer first = 0;
  std::jthread([&] {
    first = collectives->start(call(1));
    EXPECT_FALSE(collectives->over(first));
  }).join();
  EXPECT_TRUE(begun.empty());
  const auto second = collectives->start(call(3));
  EXPECT_EQ(begun, (std::vector<int>{1, 3})) << "in the order in which they were started";
  for (const auto transfer : {first, second}) {
    bool over = false;
    while (!over && std::chrono::steady_clock::now() < deadline) over = collectives->over(transfer);
    EXPECT_TRUE(over);
  }
  EXPECT_TRUE(only_by_main);
  EXPECT_EQ(output, input);
  MPI_Finalize();
}

}  // namespace
}  // namespace ranvier::transport
