#include "transport/udp_keeper.h"

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <utility>

#include "base/thread.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 2ms;  // for others who move packets

}  // namespace

UdpKeeper::UdpKeeper(const UdpSocket& socket, std::mutex& mutex, std::function<Time(Time now)> advance)
    : socket_(socket), mutex_(mutex), advance_(std::move(advance)) {}

void UdpKeeper::start() {
  thread_ = start_thread("what udp sends again", [this] { run(); });
}

void UdpKeeper::stop() {
  stop_ = true;
  signal_event(wake_);
  if (thread_.joinable()) thread_.join();
}

// It went to sleep when nothing was due: what was just sent may have to be sent again while nobody else looks.
void UdpKeeper::due(Time next) {
  if (next >= until_) return;
  until_ = Time::min();
  signal_event(wake_);
}

void UdpKeeper::run() {
  for (;;) {
    clear_event(wake_);
    if (stop_) return;
    const Time driven{std::chrono::nanoseconds(driven_at_.load(std::memory_order_relaxed))};
    if (others_sleep_ || Clock::now() - driven < patience) {
      pollfd wake{wake_.get(), POLLIN, 0};
      const timespec time{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(patience).count()};
      ppoll(&wake, 1, &time, nullptr);
      continue;
    }
    Time now, next;
    try {
      const std::lock_guard lock(mutex_);
      if (others_sleep_) continue;  // since it was asked: nobody would wake them for what came meanwhile
      until_ = Time::min();
      now = Clock::now();
      until_ = next = advance_(now);
    } catch (const Error& problem) {  // no memory for a lane
      const std::lock_guard lock(mutex_);
      problem_ = problem;
      return;
    } catch (const std::exception& problem) {
      const std::lock_guard lock(mutex_);
      problem_ = Error(ErrorKind::internal, fmt::format("udp cannot go on: {}", problem.what()));
      return;
    }
    socket_.wait(wake_, next == Time::max() ? std::chrono::nanoseconds(1h) : next - now);
  }
}

}  // namespace ranvier::transport
