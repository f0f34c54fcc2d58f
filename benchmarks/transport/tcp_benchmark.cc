// Claim: where each rank has a core, polling sockets through Transport beats a program that blocks in send() and recv()
// on one bare loopback connection, as it need not be woken. Beside it, in the same run: that program. On busy cores the
// kernel's wake-up wins: run this on an idle machine.
// ping_pong is the time there and back; in both_ways both ranks send and receive the argument's bytes at the same time.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;

std::vector<std::unique_ptr<Transport>> tcp_pair() {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::string> addresses;
  for (Rank rank = 0; rank < 2; ++rank) {
    endpoints.push_back(tcp_endpoint({.rank = rank, .world = 2}));
    addresses.push_back(endpoints.back()->address());
  }
  std::vector<std::unique_ptr<Transport>> pair(2);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  std::jthread other([&] { pair[1] = endpoints[1]->connect(addresses, deadline); });
  pair[0] = endpoints[0]->connect(addresses, deadline);
  other.join();
  return pair;
}

// Sends and receives as much as is asked for, as the engine does: a slice each way in turn, then spin, yield, sleep.
void exchange(Transport& transport, ConstBytes out, Bytes in) {
  const Rank peer = 1 - transport.rank();
  const TransportTraits traits = transport.traits();
  std::size_t sent = 0, received = 0;
  for (int idle = 0; sent < out.size() || received < in.size();) {
    bool moved = false;
    if (sent < out.size()) {
      const ConstBytes rest = out.subspan(sent);
      const std::size_t accepted =
          transport.try_send(peer, 0, {}, rest.first(std::min(rest.size(), traits.slice_bytes)));
      sent += accepted;
      moved |= accepted > 0;
    }
    if (received < in.size()) {
      const Bytes rest = in.subspan(received);
      const ConstBytes view = transport.try_recv(peer, 0, rest.first(std::min(rest.size(), traits.slice_bytes)));
      const std::size_t taken = std::min(view.size(), rest.size());
      if (taken > 0 && view.data() != rest.data()) {
        std::copy_n(view.begin(), taken, rest.begin());
        transport.release(peer, 0, taken);
      }
      received += taken;
      moved |= !view.empty();
    }
    idle = moved ? 0 : idle + 1;
    if (idle > traits.polls_before_wait)
      transport.wait(1s);
    else if (idle > traits.polls_before_yield)
      sched_yield();
  }
}

void ping_pong(benchmark::State& state) {
  const auto pair = tcp_pair();
  std::vector<std::byte> mine(static_cast<std::size_t>(state.range(0))), theirs(mine.size());
  std::jthread peer([&] {
    try {
      for (;;) {
        exchange(*pair[1], {}, theirs);
        exchange(*pair[1], theirs, {});
      }
    } catch (const Error&) {  // the other side has enough
    }
  });
  for (auto _ : state) {
    exchange(*pair[0], mine, {});
    exchange(*pair[0], {}, mine);
  }
  pair[0]->cancel();
}
BENCHMARK(ping_pong)->Arg(4)->Arg(1 << 10)->Arg(16 << 10)->Arg(256 << 10)->UseRealTime();

void both_ways(benchmark::State& state) {
  const auto pair = tcp_pair();
  std::vector<std::byte> mine(static_cast<std::size_t>(state.range(0))), theirs(mine.size());
  std::vector<std::byte> my_copy(mine.size()), their_copy(mine.size());
  std::jthread peer([&] {
    try {
      for (;;) exchange(*pair[1], theirs, their_copy);
    } catch (const Error&) {  // the other side has enough
    }
  });
  for (auto _ : state) exchange(*pair[0], mine, my_copy);
  pair[0]->cancel();
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}
BENCHMARK(both_ways)->Arg(256 << 10)->Arg(4 << 20)->Arg(64 << 20)->UseRealTime();

// ---- The bare program.

struct BarePair {
  BarePair() {
    const Fd listener = listen_on("127.0.0.1", {}, {});
    near = start_connect(local_address(listener), {});
    pollfd ready{near.get(), POLLOUT, 0};
    poll(&ready, 1, 1000);
    far = accept_next(listener);
    for (const Fd* socket : {&near, &far}) {
      const int on = 1;
      setsockopt(socket->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      fcntl(socket->get(), F_SETFL, 0);  // blocking
    }
  }
  Fd near, far;
};

bool send_all(const Fd& socket, ConstBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

bool recv_all(const Fd& socket, Bytes bytes) {
  return bytes.empty() || recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) == std::ssize(bytes);
}

void ping_pong_bare(benchmark::State& state) {
  const BarePair pair;
  std::vector<std::byte> mine(static_cast<std::size_t>(state.range(0))), theirs(mine.size());
  std::jthread peer([&] {
    while (recv_all(pair.far, theirs) && send_all(pair.far, theirs)) {
    }
  });
  for (auto _ : state) {
    send_all(pair.near, mine);
    recv_all(pair.near, mine);
  }
  shutdown(pair.near.get(), SHUT_RDWR);
}
BENCHMARK(ping_pong_bare)->Arg(4)->Arg(1 << 10)->Arg(16 << 10)->Arg(256 << 10)->UseRealTime();

// A blocking program needs a thread for each direction.
void both_ways_bare(benchmark::State& state) {
  const BarePair pair;
  std::vector<std::byte> mine(static_cast<std::size_t>(state.range(0))), theirs(mine.size()), copy(mine.size());
  std::vector<std::byte> their_copy(mine.size());
  std::atomic<std::int64_t> rounds = 0;
  std::jthread their_sender([&] {
    for (std::int64_t round = 0;; ++round) {
      rounds.wait(round);
      if (rounds < 0 || !send_all(pair.far, theirs)) return;
    }
  });
  std::jthread their_receiver([&] {
    while (recv_all(pair.far, their_copy)) {
    }
  });
  for (auto _ : state) {
    ++rounds;
    rounds.notify_all();
    std::jthread my_sender([&] { send_all(pair.near, mine); });
    recv_all(pair.near, copy);
  }
  rounds = -1;
  rounds.notify_all();
  shutdown(pair.near.get(), SHUT_RDWR);
  state.SetBytesProcessed(state.iterations() * 2 * state.range(0));
}
BENCHMARK(both_ways_bare)->Arg(256 << 10)->Arg(4 << 20)->Arg(64 << 20)->UseRealTime();

}  // namespace
}  // namespace ranvier
