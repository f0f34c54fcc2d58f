// Claim: for what ranvier asks of its sockets, io_uring (J. Axboe, "Efficient IO with io_uring", 2019) is not faster
// than send() and recv() that never block, with epoll to sleep in. Two threads exchange the argument's bytes each way
// over so many bare connections on loopback, as ranks do with so many partners in a round:
//   direct/spins   send() and recv() until all is moved: what ranvier does while a core has nothing else to do
//   direct/sleeps  the same, but in epoll_wait() whenever no socket moves: what it does then
//   uring/sleeps   every send and receive queued, one io_uring_enter() for all, which sleeps until all are done
//   uring/spins    the same, but looks at the completions until all are there
// --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true lets them take turns.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "base/socket.h"

namespace ranvier {
namespace {

// One direction of one connection: what is left of its bytes.
struct Flow {
  int socket;
  std::byte* at;
  std::size_t left;
};

// Moves all bytes of one round; false once the other side has left.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual bool move(std::vector<Flow> outgoing, std::vector<Flow> incoming) = 0;
};

class Direct : public Mover {
 public:
  explicit Direct(const std::vector<Fd>& sockets, bool sleeps) : sleeps_(sleeps), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (const Fd& socket : sockets) {
      fcntl(socket.get(), F_SETFL, O_NONBLOCK);
      epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.fd = socket.get()}};
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event);
    }
  }

  bool move(std::vector<Flow> outgoing, std::vector<Flow> incoming) override {
    for (;;) {
      bool moved = false, finished = true;
      for (Flow& flow : outgoing)
        if (flow.left > 0 && !advance(flow, send(flow.socket, flow.at, flow.left, MSG_NOSIGNAL), moved)) return false;
      for (Flow& flow : incoming)
        if (flow.left > 0 && !advance(flow, recv(flow.socket, flow.at, flow.left, 0), moved)) return false;
      for (const auto* flows : {&outgoing, &incoming})
        for (const Flow& flow : *flows) finished = finished && flow.left == 0;
      if (finished) return true;
      if (!moved && sleeps_) {
        std::array<epoll_event, 16> events;
        epoll_wait(epoll_.get(), events.data(), events.size(), 1000);
      }
    }
  }

 private:
  static bool advance(Flow& flow, ssize_t count, bool& moved) {
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    flow.at += count;
    flow.left -= static_cast<std::size_t>(count);
    moved = true;
    return true;
  }

  bool sleeps_;
  Fd epoll_;
};

class Uring : public Mover {
 public:
  explicit Uring(const std::vector<Fd>& sockets, bool sleeps) : sleeps_(sleeps) {
    for (const Fd& socket : sockets) fcntl(socket.get(), F_SETFL, 0);
    io_uring_params params{};
    // The cheapest that there is for each: completions are worked off in io_uring_enter(), or by the interrupted
    // thread.
    params.flags = sleeps ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN : 0;
    works_ = io_uring_queue_init_params(64, &ring_, &params) == 0;
  }
  ~Uring() override {
    if (works_) io_uring_queue_exit(&ring_);
  }
  bool works() const { return works_; }

  bool move(std::vector<Flow> outgoing, std::vector<Flow> incoming) override {
    for (Flow& flow : incoming) queue(flow, false);
    for (Flow& flow : outgoing) queue(flow, true);
    unsigned open = static_cast<unsigned>(outgoing.size() + incoming.size());
    if (!sleeps_) io_uring_submit(&ring_);
    while (open > 0) {
      if (sleeps_) io_uring_submit_and_wait(&ring_, open);
      io_uring_cqe* done = nullptr;
      while (io_uring_peek_cqe(&ring_, &done) == 0) {
        if (done->res <= 0) return false;
        auto& flow = *static_cast<Flow*>(io_uring_cqe_get_data(done));
        flow.at += done->res;
        flow.left -= static_cast<std::size_t>(done->res);
        const bool is_outgoing = &flow >= outgoing.data() && &flow < outgoing.data() + outgoing.size();
        io_uring_cqe_seen(&ring_, done);
        if (flow.left == 0) {
          --open;
          continue;
        }
        queue(flow, is_outgoing);
        if (!sleeps_) io_uring_submit(&ring_);
      }
    }
    return true;
  }

 private:
  void queue(Flow& flow, bool outgoing) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (outgoing)
      io_uring_prep_send(entry, flow.socket, flow.at, flow.left, MSG_NOSIGNAL | MSG_WAITALL);
    else
      io_uring_prep_recv(entry, flow.socket, flow.at, flow.left, MSG_WAITALL);
    io_uring_sqe_set_data(entry, &flow);
  }

  bool sleeps_;
  bool works_ = false;
  io_uring ring_{};
};

struct Side {
  std::vector<Fd> sockets = {};
  std::vector<std::byte> out = {}, in = {};
  bool exchange(Mover& mover, std::size_t bytes) {
    std::vector<Flow> outgoing, incoming;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      outgoing.push_back({sockets[i].get(), out.data() + i * bytes, bytes});
      incoming.push_back({sockets[i].get(), in.data() + i * bytes, bytes});
    }
    return mover.move(std::move(outgoing), std::move(incoming));
  }
};

void connect(Side& near, Side& far, std::size_t count, std::size_t bytes) {
  const Fd listener = listen_on("127.0.0.1", {}, {});
  for (std::size_t i = 0; i < count; ++i) {
    near.sockets.push_back(start_connect(local_address(listener), {}));
    pollfd ready{near.sockets.back().get(), POLLOUT, 0};
    poll(&ready, 1, 1000);
    far.sockets.push_back(accept_next(listener));
    for (const Side* side : {&near, &far}) {
      const int on = 1;
      setsockopt(side->sockets.back().get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
  }
  for (Side* side : {&near, &far}) side->out = side->in = std::vector<std::byte>(count * bytes);
}

template <class Kind>
void exchange(benchmark::State& state, bool sleeps) {
  const auto count = static_cast<std::size_t>(state.range(0)), bytes = static_cast<std::size_t>(state.range(1));
  Side near, far;
  connect(near, far, count, bytes);
  Kind mover(near.sockets, sleeps);
  if constexpr (requires { mover.works(); })
    if (!mover.works()) return state.SkipWithError("this kernel has no io_uring, or not this kind of it");
  std::jthread peer([&] {
    Kind its(far.sockets, sleeps);
    while (far.exchange(its, bytes)) {
    }
  });
  for (auto _ : state) near.exchange(mover, bytes);
  for (const Fd& socket : near.sockets) shutdown(socket.get(), SHUT_RDWR);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(count * bytes));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"sockets", "bytes"});
  for (const int sockets : {1, 7})
    for (const int bytes : {64, 4 << 10, 64 << 10, 1 << 20}) benchmark->Args({sockets, bytes});
  benchmark->UseRealTime();
}
void direct(benchmark::State& state, bool sleeps) { exchange<Direct>(state, sleeps); }
void uring(benchmark::State& state, bool sleeps) { exchange<Uring>(state, sleeps); }
BENCHMARK_CAPTURE(direct, spins, false)->Apply(sizes);
BENCHMARK_CAPTURE(direct, sleeps, true)->Apply(sizes);
BENCHMARK_CAPTURE(uring, spins, false)->Apply(sizes);
BENCHMARK_CAPTURE(uring, sleeps, true)->Apply(sizes);

}  // namespace
}  // namespace ranvier
