#include "integrations/trainer/rendezvous.h"

#include <netdb.h>
#include <poll.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstring>
#include <exception>
#include <future>
#include <thread>

#include "base/socket.h"
#include "integrations/torch/backend.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto pause_between_attempts = milliseconds(100);

// Whether a connection to any of the place's addresses stands before `deadline`; else an errno, or of getaddrinfo.
struct Reached {
  bool good = false;
  std::string problem;
};

Reached try_once(const TcpStorePlace& place, steady_clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int problem = getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found);
      problem != 0)
    return {.problem = gai_strerror(problem)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Reached last;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    const Fd socket = start_connect(address, {});
    if (!socket) {
      last.problem = std::strerror(errno);
      continue;
    }
    pollfd writable{socket.get(), POLLOUT, 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (poll(&writable, 1, static_cast<int>(std::max(left, milliseconds(0)).count())) <= 0) {
      last.problem = "no answer";
      continue;
    }
    const int problem = connect_result(socket);
    if (problem == 0) return {.good = true, .problem = {}};
    last.problem = std::strerror(problem);
  }
  return last;
}

// Rank 0 may begin to serve after others have come. torch would try again by itself, and print a page for each attempt.
void wait_for_server(const TcpStorePlace& place, steady_clock::time_point deadline) {
  for (;;) {
    const Reached reached = try_once(place, deadline);
    if (reached.good) return;
    if (steady_clock::now() + pause_between_attempts >= deadline) throw std::runtime_error(reached.problem);
    std::this_thread::sleep_for(pause_between_attempts);
  }
}

c10::intrusive_ptr<c10d::Store> torch_store_at(const TcpStorePlace& place, steady_clock::time_point deadline) {
  if (!place.serve) wait_for_server(place, deadline);
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.serve;
  options.waitWorkers = false;  // the communicator counts them, and names those who are missing
  options.timeout = std::max(std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()), milliseconds(1));
  try {
    return c10::make_intrusive<c10d::PrefixStore>(place.prefix,
                                                  c10::make_intrusive<c10d::TCPStore>(place.address, options));
  } catch (const c10::Error& problem) {
    throw std::runtime_error(problem.what_without_backtrace());
  }
}

[[noreturn]] void throw_unreachable(const TcpStorePlace& place, const std::string& problem) {
  const std::string where = place.address + ":" + std::to_string(place.port);
  throw Error(ErrorKind::unreachable,
              place.serve ? "cannot serve torch's store at " + where +
                                ": is the port taken? Choose another MASTER_PORT (" + problem + ")"
                          : "torch's store at " + where + " does not answer: check MASTER_ADDR, MASTER_PORT and the " +
                                "network (" + problem + ")");
}

}  // namespace

std::unique_ptr<Store> tcp_store(const TcpStorePlace& place, milliseconds timeout) {
  // On a thread: neither looking up a name nor torch's first words with a server that says nothing keep to a deadline.
  // It is left behind where it does not come back; the process is about to end then.
  std::promise<c10::intrusive_ptr<c10d::Store>> promise;
  auto made = promise.get_future();
  const auto deadline = steady_clock::now() + timeout;
  std::thread([place, deadline, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(torch_store_at(place, deadline));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (made.wait_until(deadline + pause_between_attempts) != std::future_status::ready)
    throw_unreachable(place, "something there accepts connections and says nothing");
  try {
    return pytorch::torch_store(made.get());
  } catch (const std::runtime_error& problem) {
    throw_unreachable(place, problem.what());
  }
}

}  // namespace ranvier::trainer
