// Drives operations over one transport: who advances, who waits, and what happens when something fails.
//
// One thread at a time drives: it advances every operation until what it waits for is done. A caller that waits drives
// itself, on its own core, with nothing handed to another thread; the background thread drives only while nobody waits.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/forked.h"
#include "engine/call_back.h"
#include "engine/call_history.h"
#include "engine/collective.h"
#include "engine/control_plane.h"
#include "engine/core_sharing.h"
#include "engine/flight_recorder.h"
#include "engine/inquiry.h"
#include "engine/messages.h"
#include "engine/operation.h"
#include "engine/operation_pool.h"
#include "engine/siblings.h"
#include "engine/traffic_meter.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier::engine {

struct EngineOptions {
  Epoch epoch = 0;
  bool background_progress = true;
  bool crowded = false;  // also where the transport does not know of it, see TransportTraits
  // By which the other ranks are told and asked; outlives close(). Null: there is nobody.
  ControlPlane* control = nullptr;
  Names names = {};
  std::string group = {};                      // its name, in errors that speak of several
  std::shared_ptr<Siblings> siblings = {};     // null: it has none
  std::function<void()> check_interrupt = {};  // see CommunicatorOptions; null: nothing interrupts
};

class BoundedOperation;

// Held by shared_ptr: whoever waits in it, as its own thread does, keeps it.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::unique_ptr<Transport> transport, EngineOptions options);
  ~Engine();
  // Fails what is under way and refuses what comes. Once it returns, the control plane is no longer called.
  void close();
  // Whether it had not failed until then.
  bool closed_in_order() const { return closed_in_order_; }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The next collective's, and notes it. Every rank calls in the same order with the same priorities. Each class of
  // those above 0 has a lane of its own, so that none of another class is in front of them there: which operations of a
  // lane have begun differs from rank to rank, so that nothing there can be passed.
  Ticket next_ticket(int priority, const CallStamp& stamp) {
    const auto [sequence, history] = history_->add(stamp);
    if (const Lane urgency = urgency_of(priority); urgency > 0) {
      elsewhere_.fetch_add(1, std::memory_order_relaxed);
      const std::uint32_t turn = urgent_[urgency - 1].fetch_add(1, std::memory_order_relaxed);
      return {sequence, static_cast<Lane>(ordinary_lanes + urgency - 1), turn, turn + 1, history};
    }
    // Of these every fourth is on one lane, also when the count wraps around.
    const std::uint32_t ordinary = sequence - elsewhere_.load(std::memory_order_relaxed);
    return {sequence, static_cast<Lane>(ordinary % ordinary_lanes), ordinary, ordinary + ordinary_lanes, history};
  }

  // The number of the next collective, see CallHistory::restart; lanes go on in their order.
  void renumber(std::uint32_t next) {
    elsewhere_.fetch_add(next - history_->now().count, std::memory_order_relaxed);
    history_->restart(next);
  }
  // Whoever waits gives his core away as if it had come back soon each time.
  void forget_absences() { core_.forget(); }

  // Notes one that has no lane, since its bytes do not move as a collective's; its number.
  std::uint32_t count_call(const CallStamp& stamp) {
    elsewhere_.fetch_add(1, std::memory_order_relaxed);
    return history_->add(stamp).count;
  }

  // Runs to the end on the calling thread, with nothing allocated, queued or handed over. First claim: that takes the
  // driver's seat and gives the operation to set up. Null when another thread has it, or after a failure: then start()
  // is the way. A claim ends with run_claimed or drop_claim.
  CollectiveOperation* try_claim();
  void run_claimed(std::chrono::nanoseconds timeout);
  void drop_claim();

  std::shared_ptr<Operation> start(CollectiveCall call, std::chrono::nanoseconds timeout);
  std::shared_ptr<Operation> start_send(ConstTypedSpan data, Rank to, std::uint64_t tag,
                                        std::chrono::nanoseconds timeout, CallLabel label = {});
  std::shared_ptr<Operation> start_recv(TypedSpan data, Rank from, std::uint64_t tag, bool may_be_shorter,
                                        std::chrono::nanoseconds timeout, CallLabel label = {});

  // For one of the library's own, see VendorOperation.
  std::shared_ptr<Operation> start(std::shared_ptr<Operation> operation, std::chrono::nanoseconds timeout) {
    return enqueue({std::move(operation), nullptr}, timeout);
  }

  // For one that is more than its program, but has a collective's place in their order.
  std::shared_ptr<Operation> start(std::shared_ptr<BoundedOperation> operation, std::chrono::nanoseconds timeout);

  // Waits until what is under way has made `done` true, or `limit` passes; whether it is. Throws what check_interrupt
  // threw: then either it is, or all that was under way has ended.
  bool wait(const std::function<bool()>& done, std::optional<std::chrono::nanoseconds> limit);
  bool wait(Operation& operation, std::optional<std::chrono::nanoseconds> limit) {
    return wait([&] { return operation.finished(); }, limit);
  }
  void on_done(Operation& operation, std::function<void()> then);
  // Of one thread, a few times a second: where callbacks that wait keep everybody from driving, another thread does.
  void relieve();

  // News from the control plane; from any thread.
  bool fail(const Error& why) { return end(why, false); }  // whether nothing had failed before
  void departed(Rank rank);
  // Throws what the engine failed with, if it has: then nothing of it moves any more.
  void check_alive();
  // Throws Error{usage} in a process that was forked off since: it has neither the threads nor the memory of this one.
  void require_no_fork() const;
  bool is_forked() const { return forks() != forks_; }
  // Fails it here and on the other ranks. On return nothing that was under way touches memory.
  void abort(const Error& why);

  // To another rank's question. From any thread.
  std::pair<Answer, std::string> answer(const Question&) const;
  // What `peer` says of its last calls, where it has called something else than this rank: waits for its answer, but
  // not for long; empty if none comes. Of the driver.
  std::string last_calls_of(Rank peer);

  // That ranks have called different things, where no operation and no call has said so yet.
  std::optional<Error> untold_mismatch() const;

  // What errors are thrown with: the last operations. `failing`: see FlightRecorder::dump.
  Error with_record(const Error& error, std::optional<std::uint64_t> failing = {}) const {
    return error.with_flight_record(recent_operations(failing));
  }
  std::string recent_operations(std::optional<std::uint64_t> failing = {}) const { return recorder_.dump(8, failing); }

  const EngineOptions& options() const { return options_; }
  CallHistory& history() { return *history_; }
  std::shared_ptr<const CallHistory> shared_history() const { return history_; }
  const TransportTraits& traits() const { return traits_; }
  const FlightRecorder& recorder() const { return recorder_; }
  const Transport& transport() const { return *transport_; }
  std::optional<std::chrono::steady_clock::time_point> last_sign(Rank rank) { return transport_->last_sign(rank); }
  const TrafficMeter& traffic() const { return traffic_; }

 private:
  struct Active {
    std::shared_ptr<Operation> operation;
    CollectiveOperation* collective = nullptr;  // null: a message
  };

  // Whoever holds it drives. The others sleep on `waiters_`; only whoever ends what is under way waits for the lock
  // itself, which the driver of an engine that is closed or has failed gives up at once.
  class DriverLock {
   public:
    void lock() {
      while (!try_lock()) std::this_thread::yield();
    }
    bool try_lock() { return !held_.test(std::memory_order_relaxed) && !held_.test_and_set(std::memory_order_acquire); }
    void unlock() { held_.clear(std::memory_order_release); }
    bool is_free() const { return !held_.test(std::memory_order_relaxed); }

   private:
    std::atomic_flag held_;
  };

  enum class Pace { caller, background };

  // When whoever waits looks whether he has been interrupted: engine_interrupt.cc. Short waits do not read the clock.
  class NextLook {
   public:
    explicit NextLook(bool looks) : looks_(looks) {}
    bool is_due();
    void postpone() { at_ = {}; }

   private:
    const bool looks_;
    std::chrono::steady_clock::time_point at_{};  // the epoch: a while after is_due() is asked next
  };

  std::shared_ptr<Operation> enqueue(Active active, std::chrono::nanoseconds timeout);
  // Enters with the driver lock, leaves without it. Not null, `look`: it also leaves where that is due. Whether it has
  // left for others who wait, since nothing moves: not every thread may be one that the transport's library takes
  // (MPI).
  bool drive(const std::function<bool()>& until, Pace pace, NextLook* look = nullptr);
  void look_for_interrupt(const std::function<bool()>& done, NextLook& look);
  bool advance_all();
  Progress advance(std::size_t i, bool briefly);  // active_[i], which has its turn
  bool admit();
  void insert(Active);
  bool has_turn(const Active&) const;
  void finish(const Active&, std::exception_ptr error);
  void watch();
  Rank last_to_leave() const;
  void report_wait(std::chrono::steady_clock::time_point now);
  // Before the deadline of an operation: asks whom it waits for. All in engine_inquiry.cc.
  void inquire(std::chrono::steady_clock::time_point now);
  const Operation& whose_turn(const Operation&) const;
  Error timeout_of(const Operation&) const;
  bool takes_long();
  void nap();
  // `cause`: the operation that cannot go on, where it is one.
  void break_down(const Error& why, bool tell, const Operation* cause = nullptr);
  void end_after_failure();
  bool end(const Error& why, bool in_order);  // the same of close()
  void settle();                              // what is under way, after a failure
  void finish_what_has_arrived();
  Error prefer_verdict(const Error& own);
  // ": …", as other communicators of this process say it until then, or nothing.
  std::string why_it_left(Rank rank, std::chrono::steady_clock::time_point until) const;
  void unlock_and_call_back();
  void end_all();       // once closed
  void join_reliefs();  // likewise
  void move_at_once();
  void start_background();
  void background();
  void stop_wanting();
  bool background_is_due() const { return stop_.load() || (pending_.load() > 0 && wanted_.load() == 0); }
  void leave();
  void lend_scratch(CollectiveOperation&);
  Error error_for(const Operation&) const;
  std::string failed_before() const { return options_.siblings ? options_.siblings->failed_before(this) : ""; }

  const std::unique_ptr<Transport> transport_;
  const TransportTraits traits_;
  const EngineOptions options_;
  FlightRecorder recorder_;
  const std::shared_ptr<CallHistory> history_;
  std::array<std::atomic<std::uint32_t>, urgent_lanes> urgent_{};  // how many of each class
  std::atomic<std::uint32_t> elsewhere_ = 0;                       // how many on no ordinary lane
  TrafficMeter traffic_;

  DriverLock driver_;
  // ---- Of the driver.
  std::vector<Active> active_;                          // by priority, then in the order of their start
  std::vector<Expected> expected_;                      // by what is under way; driver only
  std::array<std::uint32_t, collective_lanes> turn_{};  // which may run on each lane: see Ticket
  struct AlignedDelete {
    void operator()(std::byte* memory) const;
  };
  struct Scratch {
    std::unique_ptr<std::byte, AlignedDelete> memory;
    std::size_t bytes = 0;
  };
  std::array<Scratch, collective_lanes> scratch_;
  Messages messages_;
  std::vector<std::function<void()>> callbacks_;  // of finished operations, to be called without the driver lock
  CollectiveOperation inline_;                    // of run_claimed, …
  std::atomic<bool> inline_busy_ = false;         // … still under way, though its caller has left the driver's seat

  // ---- Shared.
  CoreSharing core_{traits_.ranks_per_core};
  OperationPool started_;
  std::mutex inbox_mutex_;
  std::vector<Active> inbox_;
  std::atomic<bool> inbox_ready_ = false;
  std::atomic<bool> napping_ = false;  // the driver sleeps in the transport
  std::atomic<int> wanted_ = 0;        // callers that want to drive
  std::atomic<int> pending_ = 0;       // started operations that are not finished

  std::mutex waiters_mutex_;         // also guards Operation::on_done
  std::condition_variable waiters_;  // callers that wait while another one drives
  std::atomic<int> sleepers_ = 0;    // of them
  std::condition_variable work_;     // for the background thread, which rests:
  std::atomic<bool> rests_ = false;

  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;                                   // the first one, …
  mutable bool failure_told_ = false;                              // … which somebody was given
  bool closed_in_order_ = false;                                   // … which is that it was closed
  std::atomic<bool> failed_ = false;                               // failure_ is set
  const unsigned forks_ = forks_from_now();
  bool broken_down_ = false;                                       // the driver has acted on it
  std::vector<std::chrono::steady_clock::time_point> departures_;  // by rank; the epoch while present
  std::atomic<bool> any_departed_ = false;
  struct Inquiry {
    std::uint64_t record = 0;  // of the operation
    Rank peer = -1;
    std::chrono::steady_clock::time_point at{};
  };
  Inquiry inquiry_;                                   // the last one; of the driver
  std::atomic<std::uint64_t> waits_ = 0;              // in which collective for whom + 1, for answers: see inquire()
  std::chrono::steady_clock::time_point moved_at_{};  // when something last moved since; of the driver

  std::atomic<bool> stop_ = false;
  bool closed_ = false;
  std::once_flag background_once_;
  std::thread background_;

  std::atomic<int> calling_back_ = 0;  // threads that are in callbacks
  bool stood_still_ = false;           // at the last relieve()
  struct Relief {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> over;
  };
  std::mutex reliefs_mutex_;
  std::vector<Relief> reliefs_;
};

}  // namespace ranvier::engine
