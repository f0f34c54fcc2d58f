// Something under way on a transport: it advances until it would block, and never waits by itself. The engine decides
// who advances, who waits, and what happens when time runs out.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/flight_recorder.h"
#include "ranvier/transport.h"

namespace ranvier::engine {

class Engine;

enum class Progress { blocked, moved, done };

class Operation {
 public:
  virtual ~Operation() = default;

  static constexpr int most_steps = 64;
  // Its place in the order of operations is fixed. Called once, before the first advance.
  virtual void begin() {}
  // Moves what can be moved, of a long operation up to `most_steps` slices each way, so that whoever drives looks at
  // deadlines also while all goes on moving; or `briefly` at most one, so that a more urgent operation gets its turn.
  // Called by one thread at a time: whoever drives the engine. Throws Error{mismatch} when the other side turns out to
  // do something else, and what the transport throws.
  virtual Progress advance(Transport&, bool briefly) = 0;
  // "all_reduce #17 (f32 x 1024, sum)".
  virtual std::string describe() const = 0;
  // The rank whose bytes or credit it waits for; -1 when none in particular.
  virtual Rank waits_for() const = 0;
  virtual Rank source() const { return -1; }
  // The bytes without which one that has just been blocked cannot go on, where it knows; none where it waits for room
  // to send alone, of which the transport tells by itself.
  virtual std::optional<Expected> expects() const { return Expected{}; }
  // When it may move though nothing arrives; of one that has just been blocked.
  virtual std::chrono::steady_clock::time_point due() const { return std::chrono::steady_clock::time_point::max(); }
  virtual std::size_t received_bytes() const { return 0; }
  virtual FlightRecorder::Entry entry() const = 0;

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  // Valid once finished.
  const std::exception_ptr& error() const { return error_; }

  // What the engine keeps with each operation. Driver only, but for finished_ and keeper, which is set once.
  Engine* engine = nullptr;
  std::weak_ptr<Engine> keeper;  // … and for those who hold its handle: whoever waits keeps the engine until he is back
  int priority = 0;
  std::chrono::nanoseconds timeout{};
  std::chrono::steady_clock::time_point deadline{};
  std::uint64_t record = 0;  // its place in the flight recorder
  std::size_t bytes_to_send = 0;
  std::size_t bytes_to_receive = 0;
  std::size_t bytes_to_each = 0;  // to every other rank, beside its program's
  std::function<void()> on_done;  // guarded by Engine::waiters_mutex_

 protected:
  friend class Engine;
  std::atomic<bool> finished_ = false;
  std::exception_ptr error_;
};

}  // namespace ranvier::engine
