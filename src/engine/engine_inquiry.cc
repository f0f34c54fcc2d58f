// How an engine finds out what holds an operation up that is about to run out of time, and answers others who ask.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/engine.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Others are asked so long before the deadline, of short timeouts a quarter of them: an answer takes some milliseconds,
// and one for each of the ranks in a row that wait for one another. They are asked again at each quarter of that.
constexpr std::chrono::nanoseconds longest_lead = 1s;
// How long the answer of a rank that has called something else is waited for.
constexpr auto past_grace = 500ms;
constexpr std::uint32_t of_the_past = 0xFFFFFFFF;  // Question::subject
// An answer names so many of the operations that are under way.
constexpr std::size_t most_told = 2;

std::chrono::nanoseconds lead_of(const Operation& operation) { return std::min(operation.timeout / 4, longest_lead); }

// Engine::waits_, but for the peer.
constexpr std::uint64_t waits_of(std::uint32_t sequence) { return std::uint64_t{sequence} << 32 | 1U << 31; }

std::string with_time(const Siblings::Call& call) { return fmt::format("{} for {:.3g} s", call.text, call.seconds); }

}  // namespace

void Engine::inquire(steady_clock::time_point now) {
  const Operation* first = nullptr;
  const CollectiveOperation* oldest = nullptr;
  for (const Active& active : active_) {
    if (first == nullptr || active.operation->deadline < first->deadline) first = active.operation.get();
    if (active.collective != nullptr && has_turn(active) &&
        (oldest == nullptr || active.collective->call().header.sequence < oldest->call().header.sequence))
      oldest = active.collective;
  }
  if (oldest != nullptr)
    waits_.store(waits_of(oldest->call().header.sequence) | static_cast<std::uint32_t>(oldest->waits_for() + 1),
                 std::memory_order_relaxed);
  if (first == nullptr) return;
  const auto lead = lead_of(*first);
  if (now < first->deadline - lead) return;
  const Operation& held_up = whose_turn(*first);
  const Rank peer = held_up.waits_for();
  if (peer < 0) return;
  if (inquiry_.record == held_up.record && inquiry_.peer == peer && now < inquiry_.at + lead / 4) return;
  inquiry_ = {held_up.record, peer, now};
  const FlightRecorder::Entry entry = held_up.entry();
  options_.control->ask(
      peer, {.sequence = entry.sequence,
             .subject = static_cast<std::uint32_t>(held_up.record),
             .about = is_message_call(entry.collective) ? Question::About::message : Question::About::collective});
}

// The one that holds an operation up: the one whose turn it is on its lane, or itself.
const Operation& Engine::whose_turn(const Operation& operation) const {
  const auto of = std::ranges::find(active_, &operation, [](const Active& each) { return each.operation.get(); });
  if (of == active_.end() || has_turn(*of)) return operation;
  const Lane lane = of->collective->call().ticket.lane;
  for (const Active& each : active_)
    if (each.collective != nullptr && each.collective->call().ticket.lane == lane && has_turn(each))
      return *each.operation;
  return operation;
}

Error Engine::timeout_of(const Operation& operation) const {
  const RankNames& rank_name = options_.names.rank;
  const Rank self = transport_->rank();
  const Operation& held_up = whose_turn(operation);
  const Rank peer = held_up.waits_for();
  // What was found out while it waited for another rank holds no more.
  std::optional<Finding> finding;
  if (options_.control != nullptr && inquiry_.peer == peer && inquiry_.record == held_up.record)
    finding = options_.control->finding();
  std::optional<bool> called;
  if (finding && finding->answer.is_elsewhere != 0 && options_.siblings)
    called = options_.siblings->has_called(finding->answer.group, finding->answer.sequence);
  return {ErrorKind::timeout,
          fmt::format("{} waited {:.3g} s for {} in {}{}{}{}", rank_name(self),
                      std::chrono::duration<double>(operation.timeout).count(),
                      peer >= 0 ? rank_name(peer) : "the other ranks", held_up.describe(),
                      &held_up == &operation ? "" : ", which is in front of " + operation.describe(),
                      of_group(options_.group), explanation(self, finding, called, rank_name)),
          finding ? finding->rank : peer};
}

std::pair<Answer, std::string> Engine::answer(const Question& question) const {
  const Rank self = transport_->rank();
  if (question.about == Question::About::past) return {{}, history_->last_calls(self, question.sequence)};
  Answer answer;
  std::optional<std::uint32_t> asked;
  if (question.about == Question::About::collective) {
    asked = question.sequence;
    const std::uint64_t waits = waits_.load(std::memory_order_relaxed);
    const bool waits_in_it = waits_of(question.sequence) == (waits & waits_of(0xFFFFFFFF));
    // Of an operation that began long ago the recorder knows nothing any more.
    const bool under_way = !recorder_.has_ended(question.sequence).value_or(!waits_in_it);
    answer.state = !history_->has_called(question.sequence) ? Answer::State::not_called
                   : under_way                              ? Answer::State::under_way
                                                            : Answer::State::ended;
    if (under_way && waits_in_it)
      answer.waits_for = static_cast<Rank>(static_cast<std::uint32_t>(waits & ~waits_of(0xFFFFFFFF))) - 1;
  }
  if (answer.state == Answer::State::under_way) return {answer, {}};
  const auto calls = options_.siblings ? options_.siblings->under_way(this, asked) : std::vector<Siblings::Call>();
  const std::string after = options_.siblings ? options_.siblings->after_failure() : "";
  if (calls.empty())
    return {answer, fmt::format("is in no operation now{}; its last collective there is {}", after,
                                history_->claim().last_call(options_.names.rank))};
  answer.is_elsewhere = 1;
  answer.sequence = calls.front().sequence;
  answer.group = calls.front().group;
  std::string text = with_time(calls.front());
  for (std::size_t i = 1; i < std::min(calls.size(), most_told); ++i) text += " and in " + with_time(calls[i]);
  if (calls.size() > most_told) text += fmt::format(" and in {} more", calls.size() - most_told);
  return {answer, text + after};
}

std::string Engine::last_calls_of(Rank peer) {
  if (options_.control == nullptr) return {};
  options_.control->ask(peer,
                        {.sequence = history_->alike(peer), .subject = of_the_past, .about = Question::About::past});
  // Whoever has told this rank of a failure meanwhile has said what there is to say.
  for (const auto end = steady_clock::now() + past_grace; !failed_.load() && steady_clock::now() < end;) {
    if (const auto finding = options_.control->finding()) return finding->text;
    std::this_thread::sleep_for(1ms);
  }
  return {};
}

}  // namespace ranvier::engine
