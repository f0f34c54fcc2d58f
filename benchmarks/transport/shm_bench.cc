// Ping-pong time and one-directional rate of the rings between two processes (shm) and two threads (loopback), each
// pinned to a core of its own. One row a size; medians over `repeats`, since cores of a virtual machine may move apart
// and back within seconds.
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace {

using namespace ranvier;
using Clock = std::chrono::steady_clock;

constexpr int repeats = 21;

void pin_to(int core) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(core, &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
}

void send_all(Transport& transport, ConstBytes data) {
  while (!data.empty()) data = data.subspan(transport.try_send(1 - transport.rank(), 0, {}, data));
}

// Copies what arrives to `into`, as a recv does.
void receive_all(Transport& transport, Bytes into) {
  const Rank peer = 1 - transport.rank();
  while (!into.empty()) {
    const ConstBytes view = transport.try_recv(peer, 0, into);
    if (view.empty()) continue;
    const std::size_t taken = std::min(view.size(), into.size());
    std::memcpy(into.data(), view.data(), taken);
    transport.release(peer, 0, taken);
    into = into.subspan(taken);
  }
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::array<double, repeats> values) {
  std::ranges::nth_element(values, values.begin() + repeats / 2);
  return values[repeats / 2];
}

// What both ranks run; rank 0 prints.
void run(Transport& transport) {
  pin_to(transport.rank());
  for (const std::size_t bytes : {4u, 56u, 1024u, 16u << 10, 128u << 10, 1u << 20, 16u << 20}) {
    std::vector<std::byte> buffer(bytes, std::byte{1});
    const auto rounds = static_cast<int>(std::clamp<std::size_t>((32u << 20) / bytes, 4, 20000));
    std::array<double, repeats> exchange{};
    std::array<double, repeats> stream{};
    for (int repeat = 0; repeat < repeats; ++repeat) {
      auto start = Clock::now();
      for (int round = 0; round < rounds; ++round) {
        if (transport.rank() == 0) send_all(transport, buffer);
        receive_all(transport, buffer);
        if (transport.rank() == 1) send_all(transport, buffer);
      }
      exchange[static_cast<std::size_t>(repeat)] = seconds_since(start) / rounds / 2 * 1e9;
      start = Clock::now();
      for (int round = 0; round < rounds; ++round)
        transport.rank() == 0 ? send_all(transport, buffer) : receive_all(transport, buffer);
      if (transport.rank() == 0) receive_all(transport, Bytes(buffer).first(1));
      else send_all(transport, ConstBytes(buffer).first(1));
      stream[static_cast<std::size_t>(repeat)] = static_cast<double>(bytes) * rounds / seconds_since(start) / 1e9;
    }
    if (transport.rank() == 0)
      fmt::print("{:<9} {:>9} {:>12.1f} {:>9.2f}\n", transport.traits().name, human_bytes(static_cast<double>(bytes)),
                 median(exchange), median(stream));
  }
}

void run_loopback() {
  auto world = loopback_world(2);
  std::thread other([&] { run(*world[1]); });
  run(*world[0]);
  other.join();
}

std::string read_line(int pipe) {
  std::array<char, 256> text{};
  const auto length = read(pipe, text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

void run_shm() {
  std::array<std::array<int, 2>, 2> pipes{};
  for (auto& ends : pipes)
    if (pipe(ends.data()) != 0) return;
  std::fflush(stdout);
  const pid_t child = fork();
  const Rank rank = child == 0 ? 1 : 0;
  const auto endpoint = shm_endpoint({.rank = rank, .world = 2});
  std::vector<std::string> addresses(2, endpoint->address());
  const auto mine = static_cast<std::size_t>(rank);
  if (write(pipes[mine][1], addresses[mine].data(), addresses[mine].size()) < 0) return;
  addresses[1 - mine] = read_line(pipes[1 - mine][0]);
  run(*endpoint->connect(addresses, Clock::now() + std::chrono::seconds(10)));
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
}

}  // namespace

int main() {
  fmt::print("{:<9} {:>9} {:>12} {:>9}\n", "transport", "bytes", "one way ns", "GB/s");
  run_shm();
  run_loopback();
}
