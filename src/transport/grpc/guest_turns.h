// Whose turn it is among the calls of guests, see guest_service.h. Each has its turn on a thread that is there for that
// alone: meanwhile gRPC's own threads, of which there are as few as two, have to read and to answer pings, without
// which both ends take each other for gone. Included by guest_service.cc alone.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/thread.h"

namespace ranvier::transport {

class GuestTurns {
 public:
  // One of the two is called, once, unless it is withdrawn before that. Neither throws.
  class Waiting {
   public:
    virtual void take_turn() = 0;
    virtual void miss_turn() = 0;  // there are no more

   protected:
    ~Waiting() = default;
  };

  ~GuestTurns() { end(); }
  GuestTurns() = default;
  GuestTurns(const GuestTurns&) = delete;
  GuestTurns& operator=(const GuestTurns&) = delete;

  void add(Waiting& call) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_over_) {
        waiting_.push_back(&call);
        return changed_.notify_all();
      }
    }
    call.miss_turn();
  }
  // Whether it was waiting; what is called of it otherwise has been, or is under way.
  bool withdraw(Waiting& call) {
    const std::lock_guard lock(mutex_);
    return std::erase(waiting_, &call) > 0;
  }

  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  // Returns when none is under way.
  void close() {
    std::unique_lock lock(mutex_);
    is_open_ = false;
    changed_.wait(lock, [&] { return !is_taken_; });
  }
  // For good.
  void end() {
    std::deque<Waiting*> missed;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      missed.swap(waiting_);
      changed_.notify_all();
    }
    for (Waiting* const each : missed) each->miss_turn();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_over_ || (is_open_ && !waiting_.empty()); });
      if (is_over_) return;
      Waiting& next = *waiting_.front();
      waiting_.pop_front();
      is_taken_ = true;
      lock.unlock();
      next.take_turn();
      lock.lock();
      is_taken_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // of all until the next gap
  std::condition_variable changed_;
  std::deque<Waiting*> waiting_;
  bool is_open_ = false, is_taken_ = false, is_over_ = false;

  std::thread thread_ = start_thread("the calls of guests", [this] { run(); });
};

}  // namespace ranvier::transport
