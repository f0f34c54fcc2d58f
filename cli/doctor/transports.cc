#include <fmt/format.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "doctor/check.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "ranvier/store.h"
#include "ranvier/transport.h"

namespace ranvier::doctor {
namespace {

using namespace std::chrono_literals;

constexpr Rank world = 2;
constexpr std::size_t count = 100'000;  // several slices

// Rank r adds up r + 1 with the others'. Returns what went wrong, empty if nothing did.
std::string all_reduce_once(Store& store, Rank rank, const std::string& transport) {
  try {
    CommunicatorOptions options;
    options.transport = transport;
    options.timeout = 10s;
    options.join_timeout = 10s;
    options.measure = false;  // one sum has nothing to choose
    const auto communicator = Communicator::connect(store, rank, world, options);
    std::vector<float> values(count, static_cast<float>(rank + 1));
    communicator->all_reduce(values);
    for (const float value : values)
      if (value != 3.0F) return fmt::format("the sum of 1 and 2 came out as {}", value);
    return {};
  } catch (const std::exception& problem) {
    return problem.what();
  }
}

Check check_transport(const std::string& transport, const std::string& remedy) {
  const auto store = memory_store();
  std::array<std::string, world> problems;
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> ranks;
    for (Rank rank = 0; rank < world; ++rank)
      ranks.emplace_back(
          [&, rank] { problems[static_cast<std::size_t>(rank)] = all_reduce_once(*store, rank, transport); });
  }
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  const std::string& problem = problems[0].empty() ? problems[1] : problems[0];
  const bool works = problem.empty();
  return check(
      transport,
      works ? fmt::format("two ranks joined, summed {} floats and left in {:.0f} ms", count, taken.count()) : problem,
      works, Health::fail, remedy);
}

// Of what stands in a module: not everybody needs it. It is not tried, for MPI ends the process where it cannot start.
Check check_module(const std::string& what, const std::string& missing, const std::string& page) {
  return check(what, missing.empty() ? "its library can be loaded" : missing, missing.empty(), Health::warn,
               page + " says what it is for; without need of it leave it");
}

}  // namespace

std::vector<Check> check_transports() {
  return {check_transport("shm", "use --transport tcp, or allow memory files (memfd_create) and access to /proc here"),
          check_transport("tcp", "bring the loopback interface up (ip link set lo up) and let a firewall pass it"),
          check_transport("udp", "bring the loopback interface up (ip link set lo up) and let a firewall pass UDP"),
          check_transport("grpc", "bring the loopback interface up (ip link set lo up) and let a firewall pass it"),
          check_module("transport mpi", missing_transport("mpi"), "docs/transports.md"),
          check_module("transport ucx", missing_transport("ucx"), "docs/transports.md"),
          check_module("train --serve", missing_guest_service(), "docs/synchronization.md")};
}

}  // namespace ranvier::doctor
