#include "engine/control_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "ranvier/timeouts.h"

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

Rank next_control_hop(Rank rank, Rank to, Rank world) {
  const auto forward = static_cast<std::uint64_t>((std::int64_t{to} - rank + world) % world);
  const auto backward = static_cast<std::uint64_t>(world) - forward;
  const auto step = static_cast<std::int64_t>(std::bit_floor(std::min(forward, backward)));
  return static_cast<Rank>((rank + (forward <= backward ? step : world - step)) % world);
}

ControlWatch::ControlWatch(Rank rank, Rank world, const ControlOptions& options, Time now)
    : rank_(rank), options_(options), departed_(static_cast<std::size_t>(world)), last_tick_(now) {
  options_.suspect_after = bounded(options_.suspect_after);
  options_.dead_after = bounded(options_.dead_after);
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
  if (news.type == NewsType::question || news.type == NewsType::answer) {
    if (news.culprit != rank_)
      send(news, outcome);
    else if (news.type == NewsType::question)
      reply(news, outcome);
    else
      take_answer(news, outcome);
  }
  if (news.claim && news.origin != rank_ && !settle(news.origin, *news.claim, outcome))
    claims_.insert_or_assign(news.origin, *news.claim);
  if (news.type != NewsType::departure || news.origin == rank_ || has_left(news.origin)) return;
  departed_[static_cast<std::size_t>(news.origin)] = true;
  outcome.departures.push_back(news.origin);
  outcome.pass_on.push_back(news);
}

void ControlWatch::saw(Rank neighbour, Time time) {
  Neighbour& seen = neighbours_.at(neighbour);
  if (!seen.last_heard || time <= *seen.last_heard) return;
  seen.last_heard = time;
  seen.suspected = false;
}

std::vector<Rank> ControlWatch::quiet(Time now) const {
  std::vector<Rank> found;
  for (const auto& [rank, neighbour] : neighbours_)
    if (!neighbour.ended && !has_left(rank) && neighbour.last_heard &&
        now - *neighbour.last_heard >= options_.suspect_after / 2)
      found.push_back(rank);
  return found;
}

void ControlWatch::garbled(Rank neighbour, Outcome& outcome) {
  neighbours_.at(neighbour).ended = true;
  lost(neighbour,
       fmt::format("{} sent garbage on its control connection; run the same ranvier on all ranks",
                   options_.names.rank(neighbour)),
       outcome);
}

void ControlWatch::ended(Rank neighbour, Outcome& outcome, const std::string& broken_by) {
  neighbours_.at(neighbour).ended = true;
  if (has_left(neighbour)) return;
  const std::string who = options_.names.rank(neighbour);
  lost(neighbour,
       broken_by.empty() ? fmt::format("{} died: its control connection closed; see its output for why", who)
                         : fmt::format("{} is out of reach: its control connection broke ({})", who, broken_by),
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
      const RankNames& name = options_.names.rank;
      lost(rank,
           fmt::format("{} has heard nothing from {} for {:.1f} s; see whether that one is stopped, or the way between "
                       "their hosts broken",
                       name(rank_), name(rank), seconds(options_.dead_after)),
           outcome);
    } else if (silence >= options_.suspect_after && !neighbour.suspected) {
      neighbour.suspected = true;
      outcome.log.push_back(fmt::format("{} silent for {:.1f} s", options_.names.rank(rank), seconds(silence)));
    }
  }
}

ControlWatch::Time ControlWatch::next_verdict() const {
  Time next = Time::max();
  if (faulted_) return next;
  for (const auto& [rank, neighbour] : neighbours_) {
    if (neighbour.ended || has_left(rank) || !neighbour.last_heard) continue;
    next = std::min(next, *neighbour.last_heard + (neighbour.suspected ? options_.dead_after : options_.suspect_after));
  }
  return next;
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

void ControlWatch::ask(Rank whom, Question question, Outcome& outcome) {
  if (whom != first_asked_ || question.subject != question_.subject) finding_.reset();
  first_asked_ = whom;
  question.number = question_.number + 1;
  question_ = question;
  asked_ = {whom};
  send({.type = NewsType::question, .origin = rank_, .culprit = whom, .question = question}, outcome);
}

void ControlWatch::reply(const News& question, Outcome& outcome) const {
  if (!answering_) return;
  auto [answer, text] = answering_(question.question);
  answer.number = question.question.number;
  send({.type = NewsType::answer, .origin = rank_, .culprit = question.origin, .text = text, .answer = answer},
       outcome);
}

// Who is in the same operation and waits for another there is in nobody's way: that other may be.
void ControlWatch::take_answer(const News& news, Outcome& outcome) {
  if (news.answer.number != question_.number || !asked_.contains(news.origin)) return;
  const Rank next = news.answer.waits_for;
  const bool has_next = next >= 0 && next < static_cast<Rank>(departed_.size()) && next != rank_;
  if (news.answer.state == Answer::State::under_way && has_next && asked_.insert(next).second)
    send({.type = NewsType::question, .origin = rank_, .culprit = next, .question = question_}, outcome);
  else
    finding_ = {.rank = news.origin, .answer = news.answer, .text = news.text};
}

// For nobody, or for this rank itself: garbage that has the form of news.
void ControlWatch::send(const News& news, Outcome& outcome) const {
  if (news.culprit >= 0 && news.culprit != rank_) outcome.send.push_back(news);
}

// The first fault is the one that every rank names; whatever follows is its consequence. Whether this is the first.
bool ControlWatch::settle_on(const Error& why) {
  if (std::exchange(faulted_, true)) return false;
  if (why.kind() == ErrorKind::peer_lost) lost_ = why.culprit();
  return true;
}

void ControlWatch::give_up(const Error& why, Outcome& outcome) {
  if (!settle_on(why)) return;
  outcome.pass_on.push_back(
      {.type = NewsType::fault, .origin = rank_, .kind = why.kind(), .culprit = why.culprit(), .text = why.what()});
}

void ControlWatch::fault(News news, Outcome& outcome) {
  const Error why = news.error();
  if (!settle_on(why)) return;
  outcome.fault = why;
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
