#include "engine/control_watch.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace ranvier::engine {
namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::vector<Rank> control_neighbours(Rank rank, Rank world) {
  std::set<Rank> found;
  for (std::int64_t step = 1; step < world; step *= 2) {
    found.insert(static_cast<Rank>((rank + step) % world));
    found.insert(static_cast<Rank>((rank + world - step) % world));
  }
  return {found.begin(), found.end()};
}

ControlWatch::ControlWatch(Rank rank, Rank world, const ControlOptions& options, Time now)
    : rank_(rank), options_(options), departed_(static_cast<std::size_t>(world)), last_tick_(now) {
  for (const Rank neighbour : control_neighbours(rank, world)) neighbours_[neighbour];
}

void ControlWatch::heard(Rank neighbour, const News& news, Time now, Outcome& outcome) {
  Neighbour& teller = neighbours_.at(neighbour);
  teller.last_heard = now;
  teller.suspected = false;
  if (news.type == NewsType::fault) fault(news, outcome);
  if (news.type == NewsType::waiting) {
    teller.call = news.call;
    compare(neighbour, teller, outcome);
  }
  if (news.claim && news.origin != rank_ && !settle(news.origin, *news.claim, outcome))
    claims_.insert_or_assign(news.origin, *news.claim);
  if (news.type != NewsType::departure || news.origin == rank_ || has_left(news.origin)) return;
  departed_[static_cast<std::size_t>(news.origin)] = true;
  outcome.departures.push_back(news.origin);
  outcome.pass_on.push_back(news);
}

void ControlWatch::garbled(Rank neighbour, Outcome& outcome) {
  neighbours_.at(neighbour).ended = true;
  lost(neighbour,
       fmt::format("{} sent garbage on its control connection; run the same ranvier on all ranks",
                   options_.names.rank(neighbour)),
       outcome);
}

void ControlWatch::ended(Rank neighbour, Outcome& outcome) {
  neighbours_.at(neighbour).ended = true;
  if (!has_left(neighbour))
    lost(neighbour,
         fmt::format("{} died: its control connection closed; see its output for why", options_.names.rank(neighbour)),
         outcome);
}

void ControlWatch::tick(Time now, Outcome& outcome) {
  std::erase_if(claims_, [&](const auto& each) { return settle(each.first, each.second, outcome); });
  const bool slept = now - std::exchange(last_tick_, now) > options_.suspect_after;
  for (auto& [rank, neighbour] : neighbours_) {
    if (neighbour.ended || has_left(rank) || !neighbour.last_heard) continue;
    if (slept) neighbour.last_heard = now;
    const auto silence = now - *neighbour.last_heard;
    if (silence >= options_.dead_after) {
      lost(rank,
           fmt::format("{} has been silent for {:.1f} s; see whether it is stopped or its host out of reach",
                       options_.names.rank(rank), seconds(options_.dead_after)),
           outcome);
    } else if (silence >= options_.suspect_after && !neighbour.suspected) {
      neighbour.suspected = true;
      outcome.log.push_back(fmt::format("{} silent for {:.1f} s", options_.names.rank(rank), seconds(silence)));
    }
  }
}

// Comparing with neighbours is enough: they join all ranks, so that where two ranks that wait disagree, two neighbours
// do.
void ControlWatch::waits_in(const MessageHeader& call, Outcome& outcome) {
  if (call_ == call) return;
  call_ = call;
  outcome.pass_on.push_back({.type = NewsType::waiting, .origin = rank_, .call = call});
  for (const auto& [rank, neighbour] : neighbours_) compare(rank, neighbour, outcome);
}

void ControlWatch::compare(Rank rank, const Neighbour& neighbour, Outcome& outcome) {
  if (!call_ || !neighbour.call || call_->sequence != neighbour.call->sequence || agree(*call_, *neighbour.call))
    return;
  const auto found = alike_.find(rank);
  const Error error = disagreement(rank_, *call_, rank, *neighbour.call, options_.names,
                                   calls_ ? calls_->since(rank_, found == alike_.end() ? 0 : found->second) : "");
  fault({.type = NewsType::fault, .origin = rank_, .kind = error.kind(), .culprit = rank, .text = error.what()},
        outcome);
}

// Whether the claim needs no more comparing: it has been, or is too old.
bool ControlWatch::settle(Rank rank, const CallClaim& claim, Outcome& outcome) {
  if (!calls_) return false;
  const auto verdict = calls_->compare(claim.count, claim.digest);
  if (verdict == CallHistory::Verdict::unknown)
    return static_cast<std::int32_t>(claim.count - calls_->now().count) <= 0;
  if (verdict == CallHistory::Verdict::alike) {
    alike_[rank] = claim.count;
    return true;
  }
  const Error error = calls_->divergence(rank_, rank, claim, alike_[rank]);
  fault({.type = NewsType::fault, .origin = rank_, .kind = error.kind(), .culprit = rank, .text = error.what()},
        outcome);
  return true;
}

void ControlWatch::give_up(const Error& why, Outcome& outcome) {
  if (std::exchange(faulted_, true)) return;
  outcome.pass_on.push_back(
      {.type = NewsType::fault, .origin = rank_, .kind = why.kind(), .culprit = why.culprit(), .text = why.what()});
}

// The first fault is the one that every rank names; whatever follows is its consequence.
void ControlWatch::fault(News news, Outcome& outcome) {
  if (std::exchange(faulted_, true)) return;
  outcome.fault = news.error();
  outcome.pass_on.push_back(std::move(news));
}

void ControlWatch::lost(Rank culprit, std::string text, Outcome& outcome) {
  fault({.type = NewsType::fault,
         .origin = rank_,
         .kind = ErrorKind::peer_lost,
         .culprit = culprit,
         .text = std::move(text)},
        outcome);
}

}  // namespace ranvier::engine
