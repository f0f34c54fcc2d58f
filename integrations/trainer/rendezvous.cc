#include "integrations/trainer/rendezvous.h"

#include <c10/util/Logging.h>
#include <netdb.h>
#include <poll.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/socket.h"
#include "integrations/torch/backend.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto pause_between_attempts = milliseconds(100);

// What a thread that does not come back is at.
enum class Stage { resolving, connecting, greeting, serving };
using StageNow = std::atomic<Stage>;

constexpr auto not_torchs_store = "something there accepts connections and does not answer as torch's store does";

const char* what_takes_so_long(Stage stage) {
  switch (stage) {
    case Stage::resolving:
      return "its name was not resolved in time";
    case Stage::connecting:
      return "no answer";
    case Stage::greeting:
      return not_torchs_store;
    case Stage::serving:
      break;
  }
  return "it had not begun in time";
}

// Whether a connection to any of the place's addresses stands before `deadline`; else an errno, or of getaddrinfo. Each
// address has its share of the time that is left: one that drops packets does not take that of the others.
struct Reached {
  std::string ip;  // empty: none
  std::string problem;
};

std::string ip_of(const addrinfo& address) {
  std::array<char, NI_MAXHOST> text{};
  const int problem =
      getnameinfo(address.ai_addr, address.ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return problem == 0 ? text.data() : "";
}

Reached try_once(const TcpStorePlace& place, steady_clock::time_point deadline, StageNow& progress) {
  progress = Stage::resolving;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int problem = getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &hints, &found);
      problem != 0)
    return {.ip = {}, .problem = gai_strerror(problem)};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  progress = Stage::connecting;
  int untried = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) ++untried;
  Reached last;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next, --untried) {
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    const Fd socket = start_connect(address, {});
    if (!socket) {
      last.problem = std::strerror(errno);
      continue;
    }
    pollfd writable{socket.get(), POLLOUT, 0};
    const auto left = std::chrono::ceil<milliseconds>((deadline - steady_clock::now()) / untried);
    if (poll(&writable, 1, static_cast<int>(std::max(left, milliseconds(0)).count())) <= 0) {
      last.problem = "no answer";
      continue;
    }
    const int problem = connect_result(socket);
    if (problem == 0) return {.ip = ip_of(*each), .problem = {}};
    last.problem = std::strerror(problem);
  }
  return last;
}

// The address at which there is one. Rank 0 may begin to serve after others have come.
std::string wait_for_server(const TcpStorePlace& place, steady_clock::time_point deadline, StageNow& progress) {
  for (;;) {
    const Reached reached = try_once(place, deadline, progress);
    if (!reached.ip.empty()) return reached.ip;
    if (steady_clock::now() + pause_between_attempts >= deadline) throw std::runtime_error(reached.problem);
    std::this_thread::sleep_for(pause_between_attempts);
  }
}

// torch tries again by itself, and prints a page about each attempt: an error has one sentence. Whoever asks torch for
// its log by TORCH_CPP_LOG_LEVEL has it.
class QuietTorch {
 public:
  QuietTorch() : level_(FLAGS_caffe2_log_level) {
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = fatal;
  }
  ~QuietTorch() { FLAGS_caffe2_log_level = level_; }
  QuietTorch(const QuietTorch&) = delete;
  QuietTorch& operator=(const QuietTorch&) = delete;

 private:
  static constexpr int fatal = 3;
  const int level_;
};

c10::intrusive_ptr<c10d::Store> torch_store_at(const TcpStorePlace& place, steady_clock::time_point deadline,
                                               StageNow& progress) {
  const std::string host = place.serve ? place.address : wait_for_server(place, deadline, progress);
  progress = place.serve ? Stage::serving : Stage::greeting;
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.serve;
  options.waitWorkers = false;  // the communicator counts them, and names those who are missing
  options.timeout = std::max(std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()), milliseconds(1));
  const QuietTorch quiet;
  try {
    return c10::make_intrusive<c10d::PrefixStore>(place.prefix, c10::make_intrusive<c10d::TCPStore>(host, options));
  } catch (const c10::Error& problem) {
    const std::string why = problem.what_without_backtrace();
    throw std::runtime_error(place.serve ? why : not_torchs_store + (": " + why));
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
  const auto progress = std::make_shared<StageNow>(Stage::resolving);
  std::thread([place, deadline, progress, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(torch_store_at(place, deadline, *progress));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (made.wait_until(deadline + pause_between_attempts) != std::future_status::ready)
    throw_unreachable(place, what_takes_so_long(*progress));
  try {
    return pytorch::torch_store(made.get());
  } catch (const std::runtime_error& problem) {
    throw_unreachable(place, problem.what());
  }
}

}  // namespace ranvier::trainer
