// How long one message takes, and how many bytes a second go one way, over the rings: between two processes (shm) and
// two threads (loopback), each pinned to a core. Many short windows, of which best and median are printed: the cores of
// a virtual machine may be moved apart and back within seconds, and others may run on them.
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace {

using namespace ranvier;
using Clock = std::chrono::steady_clock;

constexpr int windows = 101;
constexpr std::size_t bytes_per_window = 2 << 20;  // at most; and at most 1000 messages

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

// One way: there and back, halved.
double seconds_of_ping_pong(Transport& transport, Bytes buffer, int rounds) {
  const auto start = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    if (transport.rank() == 0) send_all(transport, buffer);
    receive_all(transport, buffer);
    if (transport.rank() == 1) send_all(transport, buffer);
  }
  return seconds_since(start) / (2 * rounds);
}

// Both send, then both receive: what an all_reduce of two ranks does. At most 8 slices, or both would wait for credit.
double seconds_of_exchange(Transport& transport, Bytes buffer, int rounds) {
  const auto start = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    send_all(transport, buffer);
    receive_all(transport, buffer);
  }
  return seconds_since(start) / rounds;
}

double seconds_of_stream(Transport& transport, Bytes buffer, int rounds) {
  const auto start = Clock::now();
  for (int round = 0; round < rounds; ++round)
    transport.rank() == 0 ? send_all(transport, buffer) : receive_all(transport, buffer);
  const Bytes done = buffer.first(1);
  transport.rank() == 0 ? receive_all(transport, done) : send_all(transport, done);
  return seconds_since(start) / rounds;
}

// What both ranks run; rank 0 prints.
void run(Transport& transport) {
  pin_to(transport.rank());
  for (const std::size_t bytes : {4u, 56u, 256u, 1u << 10, 16u << 10, 128u << 10, 1u << 20}) {
    std::vector<std::byte> buffer(bytes, std::byte{1});
    const auto rounds = static_cast<int>(std::clamp<std::size_t>(bytes_per_window / bytes, 1, 1000));
    std::vector<double> ping_pong;
    std::vector<double> exchange;
    std::vector<double> stream;
    for (int window = 0; window < windows; ++window) {
      ping_pong.push_back(seconds_of_ping_pong(transport, buffer, rounds));
      exchange.push_back(seconds_of_exchange(transport, buffer, rounds));
      stream.push_back(seconds_of_stream(transport, buffer, rounds));
    }
    if (transport.rank() != 0) continue;
    const auto nanoseconds = [](const std::vector<double>& values, std::size_t rank) { return values[rank] * 1e9; };
    const auto gigabytes = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
    for (auto* values : {&ping_pong, &exchange, &stream}) std::ranges::sort(*values);
    constexpr std::size_t best = 0;
    constexpr std::size_t median = windows / 2;
    fmt::print("{:<9} {:>8} {:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.2f} {:>7.2f}\n", transport.traits().name,
               human_bytes(static_cast<double>(bytes)), nanoseconds(ping_pong, best), nanoseconds(ping_pong, median),
               nanoseconds(exchange, best), nanoseconds(exchange, median), gigabytes(stream[best]),
               gigabytes(stream[median]));
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

// `shm_benchmark [shm|loopback]`
int main(int count, char** arguments) {
  const std::string only = count > 1 ? arguments[1] : "";
  fmt::print("{:18} {:>19} {:>19} {:>15}\n", "", "one way, ns", "exchange, ns", "stream, GB/s");
  fmt::print("{:<9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}\n", "transport", "bytes", "best", "median", "best",
             "median", "best", "median");
  if (only != "loopback") run_shm();
  if (only != "shm") run_loopback();
}
