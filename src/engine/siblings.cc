#include "engine/siblings.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/fnv.h"

namespace ranvier::engine {

std::string of_group(const std::string& name) { return name.empty() ? "" : fmt::format(" of group '{}'", name); }

std::uint64_t Siblings::number_of(std::string_view name) { return name.empty() ? 0 : fnv1a(name); }

void Siblings::join(const Engine* engine, const std::string& name, const FlightRecorder& recorder,
                    std::shared_ptr<const CallHistory> history, RankNames names) {
  const std::lock_guard lock(mutex_);
  members_[engine] = {.name = name, .recorder = &recorder, .history = std::move(history), .names = std::move(names)};
}

void Siblings::leave(const Engine* engine) {
  const std::lock_guard lock(mutex_);
  members_.erase(engine);
}

std::vector<Siblings::Call> Siblings::under_way(const Engine* engine, std::optional<std::uint32_t> asked) const {
  std::vector<Call> calls;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [each, member] : members_)
      for (const FlightRecorder::Running& running : member.recorder->running()) {
        const bool is_message = is_message_call(running.entry.collective);
        if (each == engine && !is_message && asked == running.entry.sequence) continue;
        calls.push_back({.sequence = running.entry.sequence,
                         .group = is_message ? 0 : number_of(member.name),
                         .is_message = is_message,
                         .seconds = running.seconds,
                         .text = running.text + of_group(member.name)});
      }
  }
  std::ranges::sort(calls, [](const Call& a, const Call& b) {
    return std::tuple(a.is_message, -a.seconds) < std::tuple(b.is_message, -b.seconds);
  });
  return calls;
}

std::optional<bool> Siblings::has_called(std::uint64_t group, std::uint32_t sequence) const {
  if (group == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (const auto& [engine, member] : members_)
    if (number_of(member.name) == group) return member.history->has_called(sequence);
  return std::nullopt;
}

void Siblings::failed(const Engine* engine, const Error& why, const std::string& operation) {
  const std::lock_guard lock(mutex_);
  const auto member = members_.find(engine);
  if (member == members_.end()) return;
  auto& failure = member->second.failure;
  const bool may_spread = why.kind() == ErrorKind::timeout || why.kind() == ErrorKind::mismatch;
  if (!failure) failure = Failure{why, may_spread, std::chrono::steady_clock::now(), {}};
  if (failure->operation.empty()) failure->operation = operation;
}

void Siblings::departed(const Engine* engine, Rank rank) {
  const std::lock_guard lock(mutex_);
  if (const auto member = members_.find(engine); member != members_.end())
    member->second.departed.emplace(rank, std::chrono::steady_clock::now());
}

std::optional<Siblings::Loss> Siblings::loss_of(Rank world_rank) const {
  const std::lock_guard lock(mutex_);
  std::optional<Loss> first;
  const auto found = [&](std::string why, std::chrono::steady_clock::time_point at) {
    if (!first || at < first->at) first = Loss{std::move(why), at};
  };
  for (const auto& each_engine : members_) {
    const Member& member = each_engine.second;
    const auto is_it = [&](Rank rank) { return rank >= 0 && member.names.in_world(rank) == world_rank; };
    const auto departure = std::ranges::find_if(member.departed, [&](const auto& each) { return is_it(each.first); });
    const bool left = departure != member.departed.end();
    if (left && !member.names.is_world()) continue;
    if (member.failure && is_it(member.failure->why.culprit()) &&
        (left || member.failure->why.kind() == ErrorKind::peer_lost))
      found(member.failure->why.what(), member.failure->at);
    else if (left)
      found(fmt::format("{} has left the job", member.names(world_rank)), departure->second);
  }
  return first;
}

std::optional<std::string> Siblings::why_it_left(const Engine* engine, Rank rank) const {
  const std::lock_guard lock(mutex_);
  const auto own = members_.find(engine);
  if (own == members_.end()) return {};
  const Failure* first = nullptr;
  for (const auto& [each, member] : members_) {
    if (each == engine || !member.failure) continue;
    const Error& why = member.failure->why;
    const bool of_another = why.kind() == ErrorKind::peer_lost && why.culprit() >= 0 &&
                            member.names.in_world(why.culprit()) != own->second.names.in_world(rank);
    if ((why.kind() == ErrorKind::aborted || of_another) && (first == nullptr || member.failure->at < first->at))
      first = &*member.failure;
  }
  if (first == nullptr) return {};
  return first->why.what();
}

bool Siblings::is_gone(const Engine* engine, Rank rank) const {
  const std::lock_guard lock(mutex_);
  const auto own = members_.find(engine);
  if (own == members_.end() || own->second.names.is_world()) return true;
  const Rank in_world = own->second.names.in_world(rank);
  return std::ranges::any_of(members_, [&](const auto& each) {
    return each.second.names.is_world() && each.second.departed.contains(in_world);
  });
}

std::string Siblings::after_failure() const {
  const std::lock_guard lock(mutex_);
  const Failure* last = nullptr;
  for (const auto& [engine, member] : members_)
    if (member.failure && !member.failure->operation.empty() && (last == nullptr || member.failure->at > last->at))
      last = &*member.failure;
  if (last == nullptr) return {};
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - last->at;
  return fmt::format(" ({:.1f} s after {} failed)", since.count(), last->operation);
}

std::string Siblings::failed_before(const Engine* engine) const {
  const std::lock_guard lock(mutex_);
  const auto own = members_.find(engine);
  if (own == members_.end() || !own->second.failure) return {};
  const Member* first = nullptr;
  for (const auto& [each, member] : members_)
    if (each != engine && member.failure && member.failure->at <= own->second.failure->at &&
        member.failure->may_spread && member.failure->why.what() != std::string_view(own->second.failure->why.what()) &&
        (first == nullptr || member.failure->at < first->failure->at))
      first = &member;
  if (first == nullptr) return {};
  const std::chrono::duration<double> before = own->second.failure->at - first->failure->at;
  return fmt::format("; {:.1f} s before, {} failed: {}", before.count(),
                     first->name.empty() ? "another communicator" : fmt::format("group '{}'", first->name),
                     first->failure->why.what());
}

}  // namespace ranvier::engine
