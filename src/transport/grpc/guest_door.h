// Who stands in the service of guests, see guest_service.h. A program that anybody wrote may open a connection for each
// call and close none, and strangers may open as many as the system gives; each takes descriptors and memory of a rank
// that has to train. So connections are counted: of those that call there are only so many, beyond which calls are
// refused; of idle ones the one that has been idle for longest has to go, whose guest connects again when it calls.
// Included by guest_service.cc alone.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "base/thread.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "transport/grpc/handed_over.h"

namespace ranvier::transport {

class GuestDoor {
  struct Guest {
    explicit Guest(Fd socket) : connection(std::move(socket)) {}
    HandedOver connection;
    std::size_t calls = 0;  // under way
    bool has_to_go = false;
  };

 public:
  GuestDoor(Fd listener, std::unique_ptr<HandedOver::Acceptor> acceptor, const GuestLimits& limits)
      : listener_(std::move(listener)), acceptor_(std::move(acceptor)), limits_(limits) {}
  ~GuestDoor() { close(); }
  GuestDoor(const GuestDoor&) = delete;
  GuestDoor& operator=(const GuestDoor&) = delete;

  // Once gRPC's server runs.
  void open() {
    thread_ = start_thread("the connections of guests", [this] { run(); });
  }
  // Nobody comes in any more.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    signal_event(wake_);
    if (thread_.joinable()) thread_.join();
  }

  // As long as there is one, its guest is not idle. The door outlives it.
  class Call {
   public:
    Call(GuestDoor& door, std::shared_ptr<Guest> guest) : door_(door), guest_(std::move(guest)) {}
    ~Call() { door_.ended(guest_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    GuestDoor& door_;
    const std::shared_ptr<Guest> guest_;
  };
  // Of whom gRPC calls `peer`; null where too many others call.
  std::unique_ptr<Call> call(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    const auto guest =
        std::ranges::find_if(guests_, [&](const auto& each) { return !each->has_to_go && each->connection.is(peer); });
    if (guest == guests_.end()) return nullptr;  // it is being shown out
    if ((*guest)->calls == 0 && calling() >= limits_.calling) return nullptr;
    auto begun = std::make_unique<Call>(*this, *guest);
    ++(*guest)->calls;
    return begun;
  }

 private:
  using Guests = std::list<std::shared_ptr<Guest>>;

  static constexpr std::size_t most_at_once = 64;        // newcomers, before it is looked who has left
  static constexpr int milliseconds_without_room = 100;  // for others to close descriptors

  void run() {
    std::vector<pollfd> polled;
    std::vector<Guests::const_iterator> order;
    bool has_room = true;
    for (;;) {
      polled = {{wake_.get(), POLLIN, 0}, {has_room ? listener_.get() : -1, POLLIN, 0}};
      order.clear();
      {
        const std::lock_guard lock(mutex_);
        if (is_closed_) return;
        for (auto guest = guests_.cbegin(); guest != guests_.cend(); ++guest) {
          polled.push_back({(*guest)->connection.socket().get(), POLLRDHUP, 0});
          order.push_back(guest);
        }
      }
      poll(polled.data(), polled.size(), has_room ? -1 : milliseconds_without_room);
      {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < order.size(); ++i) {
          if (polled[i + 2].revents == 0) continue;
          (*order[i])->connection.end();  // half of one is none
          guests_.erase(order[i]);
        }
      }
      has_room = !has_room || polled[1].revents == 0 || admit();
    }
  }

  // Whether there are descriptors left.
  bool admit() {
    try {
      for (std::size_t count = 0; count < most_at_once; ++count) {
        Fd socket = accept_next(listener_);
        if (!socket) return true;
        const auto guest = std::make_shared<Guest>(std::move(socket));
        {
          const std::lock_guard lock(mutex_);
          guests_.push_back(guest);
          show_out();
        }
        if (!guest->connection.give_to(*acceptor_, listener_)) {
          guest->connection.end();
          return false;
        }
      }
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void ended(const std::shared_ptr<Guest>& guest) {
    const std::lock_guard lock(mutex_);
    if (--guest->calls > 0) return;
    const auto place = std::ranges::find(guests_, guest);
    if (place == guests_.end()) return;
    guests_.splice(guests_.end(), guests_, place);
    show_out();
  }

  // ---- With mutex_ held.

  std::size_t calling() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(guests_, [](const auto& each) { return !each->has_to_go && each->calls > 0; }));
  }
  static bool is_idle(const std::shared_ptr<Guest>& guest) { return !guest->has_to_go && guest->calls == 0; }
  // Who has to go is taken from the list where that is looked at.
  void show_out() {
    for (auto idle = static_cast<std::size_t>(std::ranges::count_if(guests_, is_idle)); idle > limits_.idle; --idle) {
      Guest& oldest = **std::ranges::find_if(guests_, is_idle);
      oldest.has_to_go = true;
      oldest.connection.end();
    }
  }

  const Fd listener_;
  const std::unique_ptr<HandedOver::Acceptor> acceptor_;
  const GuestLimits limits_;
  const Fd wake_ = event_descriptor();

  std::mutex mutex_;  // of all until the next gap
  Guests guests_;     // those that have been idle for longest first, but for those that call
  bool is_closed_ = false;

  std::thread thread_;  // the only one by which guests leave the list
};

}  // namespace ranvier::transport
