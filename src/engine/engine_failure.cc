// How an engine fails: it notices a deadline, a rank that left, a broken link or the news of a failure elsewhere,
// agrees on whom to blame, tells the others once, and ends every operation with that error. A failure is final.
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "engine/engine.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// How long a rank that lost a link waits for the control plane to say who really died. The news of a death takes
// milliseconds; without waiting, ranks would blame whoever gave up first.
constexpr auto verdict_grace = 500ms;
// Bytes of a rank that left may still be on their way when its goodbye arrives: so long nothing may have moved.
constexpr auto departure_grace = 1s;
// An operation that takes longer than this without being done is reported to the neighbours, once.
constexpr auto unremarkable_wait = 100ms;
// What has arrived before the news of a failure is taken in so many rounds at most: others may send on until they hear
// of it.
constexpr int last_rounds = 32;

}  // namespace

bool Engine::end(const Error& why, bool in_order) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return false;
    failure_ = why;
    closed_in_order_ = in_order;
    failed_.store(true);
  }
  if (options_.siblings) options_.siblings->failed(this, why);
  transport_->interrupt();
  leave();
  return true;
}

// The memory of what is under way may be let go of by whoever learns of a failure, though he asked for something else.
void Engine::settle() {
  driver_.lock();
  end_after_failure();
  unlock_and_call_back();
}

void Engine::abort(const Error& why) {
  if (is_forked()) return;  // nothing of it is this process's, and who calls may be about to say so
  if (options_.control != nullptr) options_.control->abort(why);
  fail(why);
  settle();
}

void Engine::departed(Rank rank) {
  if (options_.siblings) options_.siblings->departed(this, rank);
  const std::lock_guard lock(failure_mutex_);
  departures_[static_cast<std::size_t>(rank)] = steady_clock::now();
  any_departed_.store(true);
}

void Engine::require_no_fork() const {
  if (is_forked())
    throw Error(
        ErrorKind::usage,
        fmt::format("this process was forked off after {} had met the others, whose communicator stays with the "
                    "parent: start processes in another way, or connect here",
                    options_.names.rank(transport_->rank())),
        transport_->rank());
}

void Engine::check_alive() {
  require_no_fork();
  if (!failed_.load(std::memory_order_acquire)) return;
  settle();
  const std::lock_guard lock(failure_mutex_);
  failure_told_ = true;
  throw with_record({failure_->kind(),
                     fmt::format("this communicator has failed: {}{}", failure_->what(), failed_before()),
                     failure_->culprit()});
}

std::optional<Error> Engine::untold_mismatch() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_ && failure_->kind() == ErrorKind::mismatch && !failure_told_ ? failure_ : std::nullopt;
}

void Engine::watch() {
  const RankNames& rank_name = options_.names.rank;
  const auto now = steady_clock::now();
  for (const Active& active : active_) {
    Operation& operation = *active.operation;
    Rank peer = operation.waits_for();
    if (now >= operation.deadline) return break_down(timeout_of(operation), true, &operation);
    // What is behind another one on its lane may have all that it needs from that rank.
    if (!has_turn(active) || !any_departed_.load()) continue;
    const bool from_any = peer < 0 && operation.entry().collective == Collective::recv;
    if (from_any) peer = last_to_leave();
    if (peer < 0) continue;
    steady_clock::time_point departure;
    {
      const std::lock_guard lock(failure_mutex_);
      departure = departures_[static_cast<std::size_t>(peer)];
    }
    if (departure == steady_clock::time_point{} || now < std::max(departure, moved_at_) + departure_grace) continue;
    break_down(Error(ErrorKind::peer_lost,
                     fmt::format("{} left the job{} while {} waits for it in {}{}", rank_name(peer),
                                 from_any ? " as the last of the others" : "", rank_name(transport_->rank()),
                                 operation.describe(), why_it_left(peer, now)),
                     peer),
               true, &operation);
    return;
  }
  if (options_.control == nullptr) return;
  report_wait(now);
  inquire(now);
}

// Of the other ranks, once all of them have; else -1.
Rank Engine::last_to_leave() const {
  const std::lock_guard lock(failure_mutex_);
  Rank last = -1;
  for (Rank rank = 0; rank < transport_->world(); ++rank) {
    if (rank == transport_->rank()) continue;
    const auto departure = departures_[static_cast<std::size_t>(rank)];
    if (departure == steady_clock::time_point{}) return -1;
    if (last < 0 || departure > departures_[static_cast<std::size_t>(last)]) last = rank;
  }
  return last;
}

void Engine::report_wait(steady_clock::time_point now) {
  const Active* oldest = nullptr;
  for (const Active& active : active_)
    if (has_turn(active) && active.collective != nullptr &&
        (oldest == nullptr || active.collective->call().header.sequence < oldest->collective->call().header.sequence))
      oldest = &active;
  if (oldest == nullptr) return;
  const Operation& operation = *oldest->operation;
  if (now - (operation.deadline - operation.timeout) < unremarkable_wait) return;
  MessageHeader call = oldest->collective->call().header;
  if (oldest->collective->call().size_by_link) call.size = 0;  // it may differ between ranks
  options_.control->waits_in(call);
}

namespace {

// Links know ranks by their numbers in the group only.
Error of_a_link(const Error& lost, const RankNames& rank_name) {
  if (!rank_name.differs(lost.culprit())) return lost;
  return {lost.kind(),
          fmt::format("{} is lost; by the numbers of its group, {}", rank_name(lost.culprit()), lost.what()),
          lost.culprit()};
}

}  // namespace

// A broken link shows before the news of who died: waits for that news, and falls back on what this rank saw itself.
Error Engine::prefer_verdict(const Error& own) {
  const RankNames& rank_name = options_.names.rank;
  if (own.kind() != ErrorKind::peer_lost) return own;
  if (options_.control == nullptr) return of_a_link(own, rank_name);
  bool has_departed = false;
  const auto end = steady_clock::now() + verdict_grace;
  while (!has_departed && steady_clock::now() < end) {
    {
      const std::lock_guard lock(failure_mutex_);
      if (failure_) return *failure_;
      has_departed =
          own.culprit() >= 0 && departures_[static_cast<std::size_t>(own.culprit())] != steady_clock::time_point{};
    }
    if (!has_departed) std::this_thread::sleep_for(1ms);
  }
  if (!has_departed) return of_a_link(own, rank_name);
  return Error(ErrorKind::peer_lost,
               fmt::format("{} left the job while {} still needed it{}", rank_name(own.culprit()),
                           rank_name(transport_->rank()), why_it_left(own.culprit(), end)),
               own.culprit());
}

// A rank for which another one is lost, or that fails otherwise, leaves its groups one by one, and the news of why may
// come in any of them.
std::string Engine::why_it_left(Rank rank, steady_clock::time_point until) const {
  if (!options_.siblings) return {};
  for (;;) {
    if (const auto why = options_.siblings->why_it_left(this, rank)) return ": " + *why;
    if (options_.siblings->is_gone(this, rank) || steady_clock::now() >= until) return {};
    std::this_thread::sleep_for(1ms);
  }
}

// The news of a failure overtakes messages. An operation that the others have ended, before one of them failed in the
// next, ends here as well, and the error names the one that did fail.
void Engine::finish_what_has_arrived() {
  admit();
  bool moved = true;
  for (int round = 0; moved && round < last_rounds; ++round) {
    moved = false;
    messages_.begin_pass();
    for (std::size_t i = 0; i < active_.size();) {
      Progress progress = Progress::blocked;
      try {
        if (has_turn(active_[i])) progress = advance(i, false);
      } catch (const Error& error) {
        // A link that has ended may have brought what another operation waits for. After anything else, such as a
        // message of another size, nobody knows where in its stream the link is.
        if (error.kind() != ErrorKind::peer_lost) return;
      } catch (const std::exception&) {
        return;
      }
      moved |= progress != Progress::blocked;
      if (progress != Progress::done) ++i;
    }
  }
}

// Also what has slipped in since the last time: nothing is advanced any more.
void Engine::end_after_failure() {
  if (!broken_down_) finish_what_has_arrived();
  if (!broken_down_ || inbox_ready_.load() || !active_.empty()) break_down(*failure_, false);
}

void Engine::break_down(const Error& why, bool tell, const Operation* cause) {
  Error first = why;
  bool in_order = false;
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) {
      first = *failure_;
      in_order = closed_in_order_;
      tell = false;  // it came from the others, or has been told
    } else {
      failure_ = why;
    }
    failed_.store(true);
  }
  const bool has_ended = std::exchange(broken_down_, true);
  if (options_.siblings) {
    const Operation* const failing = cause != nullptr || active_.empty() ? cause : active_.front().operation.get();
    options_.siblings->failed(this, first, failing == nullptr ? "" : failing->describe() + of_group(options_.group));
  }
  // Before the links close: some transports take a while to say goodbye, and whoever sees a link end asks who was to
  // blame.
  if (tell && options_.control != nullptr) options_.control->abort(first);
  if (!has_ended) in_order ? transport_->close() : transport_->cancel();
  admit();
  if (cause != nullptr) recorder_.end(cause->record, true);
  std::vector<Active> failing;
  failing.swap(active_);
  // All of them before the first has ended: to each the others were still under way.
  std::vector<std::exception_ptr> errors;
  for (const Active& active : failing) errors.push_back(std::make_exception_ptr(error_for(*active.operation)));
  for (std::size_t i = 0; i < failing.size(); ++i) finish(failing[i], errors[i]);
}

Error Engine::error_for(const Operation& operation) const {
  const std::lock_guard lock(failure_mutex_);
  failure_told_ = true;
  return with_record(
      {failure_->kind(), fmt::format("{} failed: {}{}", operation.describe(), failure_->what(), failed_before()),
       failure_->culprit()},
      operation.record);
}

}  // namespace ranvier::engine
