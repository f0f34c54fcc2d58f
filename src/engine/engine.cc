#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/thread.h"
#include "engine/bounded_operation.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// The longest sleep of a driver: deadlines and departures are looked at that often.
constexpr auto longest_nap = 10ms;
// A started operation that sends no more than this begins on the thread that starts it; larger ones would keep that
// thread from its own work.
constexpr std::size_t most_at_once = 64 << 10;
// Whoever starts an operation often waits for it next, and then drives best itself; the background thread lets it.
constexpr auto head_start = 50us;
// How often a blocking call moves before it takes the long way, which looks at deadlines: while others are under way,
// some of which may be more urgent, enough for a small one of two ranks to end; alone, some milliseconds' worth.
constexpr int moves_at_once = 8;
constexpr int moves_alone = 64;
// How often whoever drives finds nothing before he asks whether to ask again is worth while.
constexpr int before_asking = 2;
// How often a blocking call gives its core away before it takes the long way, which looks at deadlines and sleeps.
constexpr int yields_at_once = 16;
// How often in a row a caller drives in vain and sleeps before another one who waits is let try.
constexpr int naps_in_vain = 8;
constexpr std::align_val_t scratch_alignment{64};

// What is being thrown. A driver that let it pass would leave its seat taken for ever.
Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return {ErrorKind::internal, fmt::format("an operation failed unexpectedly: {}; please report this", error.what())};
  }
}

TransportTraits traits_of(const Transport& transport, bool crowded) {
  TransportTraits traits = transport.traits();
  if (crowded) {
    traits.ranks_per_core = std::max(traits.ranks_per_core, 2);
    traits.polls_before_yield = 0;
  }
  return traits;
}

Error closed_error() { return {ErrorKind::aborted, "the communicator has been closed"}; }

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Engine::AlignedDelete::operator()(std::byte* memory) const { ::operator delete(memory, scratch_alignment); }

Engine::Engine(std::unique_ptr<Transport> transport, EngineOptions options)
    : transport_(std::move(transport)),
      traits_(traits_of(*transport_, options.crowded)),
      options_(std::move(options)),
      recorder_(options_.names.rank),
      history_(std::make_shared<CallHistory>(transport_->world(), options_.names)),
      traffic_(transport_->rank(), transport_->world()),
      messages_(transport_->world(), options_.epoch, *history_, options_.names,
                [this](Rank peer) { return last_calls_of(peer); }),
      departures_(static_cast<std::size_t>(transport_->world())) {
  for (Lane lane = 0; lane < ordinary_lanes; ++lane) turn_[lane] = lane;
  if (options_.siblings) options_.siblings->join(this, options_.group, recorder_, history_, options_.names.rank);
}

Engine::~Engine() {
  close();
  if (options_.siblings) options_.siblings->leave(this);  // if it has not while it closed
}

// From here on nobody else is told anything, and late callers are refused. Whoever drives meanwhile sees the failure,
// ends what he waits for, and gives up the seat.
void Engine::close() {
  if (closed_) return;
  closed_ = true;
  if (options_.siblings) options_.siblings->leave(this);
  stop_ = true;
  end(closed_error(), true);
  transport_->interrupt();
  leave();
  std::call_once(background_once_, [] {});  // it is not started any more
  // In a callback that it calls it cannot be waited for: it ends next, and keeps the engine until then.
  if (background_.get_id() == std::this_thread::get_id())
    background_.detach();
  else if (background_.joinable())
    background_.join();
  join_reliefs();
  end_all();
}

void Engine::end_all() {
  driver_.lock();
  break_down(closed_error(), false);
  unlock_and_call_back();
}

// ---- Starting operations.

CollectiveOperation* Engine::try_claim() {
  if (!driver_.try_lock()) return nullptr;
  if (!inline_busy_.load(std::memory_order_acquire) && !failed_.load(std::memory_order_acquire) && !is_forked())
    return &inline_;
  driver_.unlock();
  return nullptr;
}

void Engine::drop_claim() {
  driver_.unlock();
  leave();
}

void Engine::run_claimed(std::chrono::nanoseconds timeout) {
  inline_.engine = this;
  inline_.timeout = timeout;
  inline_.record = recorder_.start(inline_.entry());
  const Active active{std::shared_ptr<Operation>(std::shared_ptr<void>(), &inline_), &inline_};

  // Most small operations end within a few polls, without a clock read or a list touched; where ranks share cores,
  // within a few turns of the others.
  bool done = false;
  std::optional<Error> problem;
  if (has_turn(active)) {
    try {
      lend_scratch(inline_);
      std::uint64_t away = 0;
      for (int idle = 0, moves = 0; !done && idle < traits_.polls_before_yield + yields_at_once;) {
        const bool alone = pending_.load(std::memory_order_relaxed) == 0;
        const Progress progress = inline_.advance(*transport_, !alone);
        done = progress == Progress::done;
        if (progress != Progress::blocked && away > 0) core_.came(std::exchange(away, 0));
        if (progress == Progress::moved) {
          if (++moves >= (alone ? moves_alone : moves_at_once)) break;
          if (alone) idle = 0;
        }
        if (progress != Progress::blocked) continue;
        if (++idle <= traits_.polls_before_yield) {
          pause();
        } else if (core_.pays()) {
          away = CoreSharing::yield();
        } else {
          break;
        }
      }
    } catch (...) {
      problem = current_error();
    }
  }
  if (done) {
    finish(active, nullptr);
    driver_.unlock();
    leave();
    return;
  }
  inline_busy_.store(true, std::memory_order_relaxed);
  inline_.deadline = steady_clock::now() + timeout;
  insert(active);
  if (problem) break_down(prefer_verdict(*problem), true, &inline_);
  wanted_.fetch_add(1);
  NextLook look(options_.check_interrupt != nullptr);
  drive([this] { return inline_.finished(); }, Pace::caller, &look);
  std::exception_ptr error;
  try {
    wait(inline_, std::nullopt);
    error = inline_.error();
  } catch (...) {
    error = std::current_exception();  // the operation has ended all the same
  }
  stop_wanting();
  inline_busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

std::shared_ptr<Operation> Engine::start(CollectiveCall call, std::chrono::nanoseconds timeout) {
  std::shared_ptr<CollectiveOperation> operation = started_.take();
  operation->reset(std::move(call));
  CollectiveOperation* const collective = operation.get();
  return enqueue({std::move(operation), collective}, timeout);
}

std::shared_ptr<Operation> Engine::start(std::shared_ptr<BoundedOperation> operation,
                                         std::chrono::nanoseconds timeout) {
  CollectiveOperation* const collective = &operation->collective();
  return enqueue({std::move(operation), collective}, timeout);
}

std::shared_ptr<Operation> Engine::start_send(ConstTypedSpan data, Rank to, std::uint64_t tag,
                                              std::chrono::nanoseconds timeout, CallLabel label) {
  auto send = std::make_shared<SendOperation>(data, to, tag, messages_, label);
  send->bytes_to_send = data.bytes();
  return enqueue({std::move(send), nullptr}, timeout);
}

std::shared_ptr<Operation> Engine::start_recv(TypedSpan data, Rank from, std::uint64_t tag, bool may_be_shorter,
                                              std::chrono::nanoseconds timeout, CallLabel label) {
  auto receive = std::make_shared<RecvOperation>(data, from, tag, may_be_shorter, messages_, label);
  receive->bytes_to_receive = data.bytes();
  return enqueue({std::move(receive), nullptr}, timeout);
}

// Before there is anything for it to drive. Where there is none, what was to be started has its number already, for
// which the others would wait.
void Engine::start_background() {
  std::call_once(background_once_, [this] {
    try {
      background_ =
          start_thread("operations that nobody waits for", [self = shared_from_this()] { self->background(); });
    } catch (const std::exception&) {
      const Error problem = current_error();
      const Rank self = transport_->rank();
      const Error why(problem.kind(), fmt::format("{} cannot go on: {}", options_.names.rank(self), problem.what()),
                      self);
      if (fail(why) && options_.control != nullptr) options_.control->abort(why);
      // Where there is no control plane the others learn it from the links, which whoever drives closes.
      if (driver_.try_lock()) {
        break_down(why, false);
        unlock_and_call_back();
      }
    }
  });
  check_alive();
}

std::shared_ptr<Operation> Engine::enqueue(Active active, std::chrono::nanoseconds timeout) {
  check_alive();
  if (options_.background_progress) start_background();
  std::shared_ptr<Operation> operation = active.operation;
  operation->engine = this;
  operation->keeper = weak_from_this();
  operation->timeout = timeout;
  operation->deadline = steady_clock::now() + timeout;
  pending_.fetch_add(1);
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(active));
    inbox_ready_.store(true);
  }
  if (stop_.load()) {
    end_all();  // it was closed since check_alive(), and nobody else would
  } else if (options_.background_progress) {
    if (operation->bytes_to_send <= most_at_once) move_at_once();
    if (napping_.load()) transport_->interrupt();
    if (!operation->finished()) leave();
  }
  return operation;
}

// Sends of a small operation what the transport takes, and with luck ends it, before another thread is woken for it.
void Engine::move_at_once() {
  if (!driver_.try_lock()) return;
  if (!failed_.load(std::memory_order_acquire)) advance_all();
  unlock_and_call_back();
}

// ---- Driving.

bool Engine::wait(const std::function<bool()>& done, std::optional<std::chrono::nanoseconds> limit) {
  if (done()) return true;
  require_no_fork();
  const auto until = limit ? std::optional(steady_clock::now() + *limit) : std::nullopt;
  const auto over = [&] { return done() || (until && steady_clock::now() >= *until); };
  NextLook look(options_.check_interrupt != nullptr);
  wanted_.fetch_add(1);
  bool gives_way = false;
  for (int tries = 0; !over(); ++tries) {
    if (!gives_way && driver_.try_lock()) {
      gives_way = drive(over, Pace::caller, &look);
    } else if (!gives_way && tries < 100 && core_.pays()) {
      if (napping_.load()) transport_->interrupt();
      if (const std::uint64_t away = CoreSharing::yield(); done()) core_.came(away);
    } else {
      // Another caller drives; it moves what this one waits for along with its own.
      std::unique_lock lock(waiters_mutex_);
      sleepers_.fetch_add(1);
      if (!done()) waiters_.wait_for(lock, 1ms);
      sleepers_.fetch_sub(1);
      gives_way = false;
    }
    if (look.is_due()) look_for_interrupt(done, look);
  }
  stop_wanting();
  return done();
}

bool Engine::drive(const std::function<bool()>& until, Pace pace, NextLook* look) {
  const int before_yield = pace == Pace::caller ? traits_.polls_before_yield : 0;
  const int before_nap = pace == Pace::caller ? traits_.polls_before_wait : std::min(traits_.polls_before_wait, 10);
  int idle = 0, naps_since = 0;
  std::uint64_t away = 0;  // the core, before this round
  bool looks = false, gives_way = false;
  for (unsigned round = 1;; ++round) {
    if (failed_.load(std::memory_order_acquire)) {
      end_after_failure();
    } else if (advance_all()) {
      if (away > 0) core_.came(std::exchange(away, 0));
      idle = naps_since = 0;
      gives_way = false;
      if (any_departed_.load(std::memory_order_relaxed)) moved_at_ = steady_clock::now();
    }
    if (!callbacks_.empty()) {
      unlock_and_call_back();
      if (until()) break;
      if (!driver_.try_lock()) return false;
    }
    if (until() || looks || gives_way) {
      driver_.unlock();
      break;
    }
    ++idle;
    // A slow but steady stream of progress must not hide a deadline.
    if (round % 64 == 0) watch();
    const bool asks = idle == before_asking + 1 || idle > std::max(before_yield, before_asking);
    const bool naps = (asks && takes_long()) || (idle > before_yield && (idle > before_nap || !core_.pays()));
    if (naps) {
      nap();
      away = 0;
      gives_way = ++naps_since >= naps_in_vain && pace == Pace::caller && wanted_.load() > 1;
    } else if (idle <= before_yield) {
      pause();
    } else {
      away = CoreSharing::yield();
    }
    // In the next round, which calls back for what watch() has ended in this one.
    looks = look != nullptr && (naps || round % 64 == 0) && look->is_due();
  }
  leave();
  return gives_way;
}

// The last caller to leave hands what is still under way to the background thread.
void Engine::stop_wanting() {
  if (wanted_.fetch_sub(1) == 1 && pending_.load() > 0) leave();
}

// Wakes those who may want to drive now; the background thread, which would find nothing to do otherwise, only where
// nobody else does.
void Engine::leave() {
  const bool background = rests_.load() && background_is_due();
  if (sleepers_.load() == 0 && !background) return;
  const std::lock_guard lock(waiters_mutex_);
  waiters_.notify_all();
  if (background) work_.notify_one();
}

bool Engine::admit() {
  if (!inbox_ready_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(inbox_mutex_);
  for (Active& active : inbox_) {
    Operation& operation = *active.operation;
    operation.record = recorder_.start(operation.entry());
    if (!broken_down_) operation.begin();
    insert(std::move(active));
  }
  inbox_.clear();
  inbox_ready_.store(false);
  return true;
}

void Engine::insert(Active active) {
  const auto behind = std::ranges::upper_bound(active_, active.operation->priority, std::greater(),
                                               [](const Active& each) { return each.operation->priority; });
  active_.insert(behind, std::move(active));
}

bool Engine::has_turn(const Active& active) const {
  if (active.collective == nullptr) return true;
  const CollectiveCall& call = active.collective->call();
  return turn_[call.ticket.lane] == call.ticket.turn;
}

bool Engine::advance_all() {
  bool moved = admit();
  messages_.begin_pass();
  if (failed_.load(std::memory_order_acquire)) return moved;
  // Of the whole pass, though its operation may end in it: whoever waits for that one shall not wait for the rest.
  // Whoever waits for another one on its lane is no reason to hold that one up.
  const auto first = std::ranges::find_if(active_, [this](const Active& each) { return has_turn(each); });
  const int most_urgent = first == active_.end() ? 0 : first->operation->priority;
  for (std::size_t i = 0; i < active_.size();) {
    if (!has_turn(active_[i])) {
      ++i;
      continue;
    }
    Progress progress = Progress::blocked;
    try {
      progress = advance(i, active_[i].operation->priority < most_urgent);
    } catch (...) {
      break_down(prefer_verdict(current_error()), true, active_[i].operation.get());
      return true;
    }
    moved |= progress != Progress::blocked;
    if (progress != Progress::done) ++i;
  }
  return moved;
}

// One that is done makes room for the next.
Progress Engine::advance(std::size_t i, bool briefly) {
  if (active_[i].collective != nullptr) lend_scratch(*active_[i].collective);
  const Progress progress = active_[i].operation->advance(*transport_, briefly);
  if (progress == Progress::done) {
    const Active done = std::move(active_[i]);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    finish(done, nullptr);
  }
  return progress;
}

// Whether what is waited for takes so long to come that asking for it again and again is a waste of the core.
bool Engine::takes_long() {
  expected_.clear();
  for (const Active& active : active_) {
    const std::optional<Expected> expected = active.operation->expects();
    if (!expected) continue;
    if (expected->bytes == 0) return false;
    expected_.push_back(*expected);
  }
  return !expected_.empty() && transport_->expect(expected_);
}

void Engine::nap() {
  watch();
  napping_.store(true);
  try {
    auto limit = std::chrono::nanoseconds(longest_nap);
    for (const Active& active : active_)
      if (const auto due = active.operation->due(); due != steady_clock::time_point::max())
        limit = std::clamp(std::chrono::nanoseconds(due - steady_clock::now()), 0ns, limit);
    if (!inbox_ready_.load() && !failed_.load() && !stop_.load())
      transport_->wait(limit);
    else
      transport_->expect({});
  } catch (...) {
    break_down(prefer_verdict(current_error()), true);
  }
  napping_.store(false);
}

void Engine::background() {
  while (!stop_.load()) {
    {
      std::unique_lock lock(waiters_mutex_);
      rests_.store(true);
      work_.wait(lock, [this] { return background_is_due(); });
      rests_.store(false);
    }
    std::this_thread::sleep_for(head_start);
    if (background_is_due() && driver_.try_lock())
      drive([this] { return pending_.load() == 0 || wanted_.load() > 0 || stop_.load(); }, Pace::background);
  }
}

// Operations of one lane share its scratch memory, since they run one after the other. What is too small goes first, or
// more would be asked for than is needed.
void Engine::lend_scratch(CollectiveOperation& operation) {
  if (!operation.needs_scratch()) return;
  Scratch& scratch = scratch_[operation.call().ticket.lane];
  const std::size_t bytes = operation.call().program->scratch_bytes;
  if (scratch.bytes < bytes) {
    scratch = {};
    scratch.memory.reset(static_cast<std::byte*>(::operator new(bytes, scratch_alignment, std::nothrow)));
    if (!scratch.memory)
      throw Error(ErrorKind::config,
                  fmt::format("{} has no memory for {} bytes of scratch; allow its process more, or choose an "
                              "algorithm that needs less, such as ring",
                              options_.names.rank(transport_->rank()), bytes),
                  transport_->rank());
    scratch.bytes = bytes;
  }
  operation.set_scratch(scratch.memory.get());
}

}  // namespace ranvier::engine
