// What one rank knows of the others, and what follows from it: the control plane without sockets, threads or clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/control_news.h"
#include "engine/control_plane.h"
#include "engine/inquiry.h"

namespace ranvier::engine {

// The ranks that are joined to `rank`: those 1, 2, 4, … away in a ring of `world`, in both directions; sorted.
std::vector<Rank> control_neighbours(Rank rank, Rank world);
// Which of them comes next on the way to `to`, of log2(world) steps at most.
Rank next_control_hop(Rank rank, Rank to, Rank world);

class ControlWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What to do about what was just learnt, in this order.
  struct Outcome {
    std::vector<News> pass_on;     // to every neighbour
    std::vector<News> send;        // questions and answers, each on its way to one rank
    std::vector<std::string> log;  // one line each
    std::optional<Error> fault;    // at most once in the life of a watch
    std::vector<Rank> departures;  // ranks that left
  };

  ControlWatch(Rank rank, Rank world, const ControlOptions& options, Time now);

  void heard(Rank neighbour, const News& news, Time now, Outcome& outcome);
  // Something else came from it at `time`; and which ones have been silent for so long that this is worth a look.
  void saw(Rank neighbour, Time time);
  std::vector<Rank> quiet(Time now) const;
  void garbled(Rank neighbour, Outcome& outcome);
  // `broken_by`: what ended it on this side; nothing: the neighbour did.
  void ended(Rank neighbour, Outcome& outcome, const std::string& broken_by = {});
  // Time passes. Call it at least every heartbeat_every(), after everything that has arrived was heard: when a call
  // comes later than suspect_after, this process was the one that slept, and everybody gets fresh time.
  void tick(Time now, Outcome& outcome);
  // When a silence becomes worth a line, or the end of the job, if nothing is heard until then: what users are promised
  // counts from the last sign of life, and not from a heartbeat of this rank.
  Time next_verdict() const;
  // This rank does not get on in `call`. When a neighbour says the same of another call with that number, the ranks
  // disagree, and each may wait for the other without a byte that could tell them so.
  void waits_in(const MessageHeader& call, Outcome& outcome);
  // The others' claims are compared with these calls from now on: as they come, and at each tick those of ranks that
  // were ahead of this one.
  void follow(std::shared_ptr<const CallHistory> calls) { calls_ = std::move(calls); }
  // Questions of other ranks are answered by it from now on; before they get no answer.
  void answer_by(Answering answering) { answering_ = std::move(answering); }
  // Asks `whom`, and where that one is in the same operation and waits for another there, that one, and so on. What was
  // found out by an earlier call with the same rank and subject stays until this one finds something.
  void ask(Rank whom, Question question, Outcome& outcome);
  const std::optional<Finding>& finding() const { return finding_; }
  // Whether `rank` has called collectives that this rank has not come to yet, so that it is not known whether they
  // agree.
  bool is_ahead(Rank rank) const { return claims_.contains(rank); }
  // This rank itself gives up: the others are told, unless they know of a fault already.
  void give_up(const Error& why, Outcome& outcome);

  // It is silent, and that is what ended the job: what it is told it does not read.
  bool is_lost(Rank neighbour) const { return neighbour == lost_ && neighbours_.at(neighbour).suspected; }
  bool has_left(Rank rank) const { return departed_[static_cast<std::size_t>(rank)]; }
  std::chrono::nanoseconds heartbeat_every() const { return std::chrono::nanoseconds(options_.suspect_after) / 4; }

 private:
  struct Neighbour {
    std::optional<Time> last_heard;  // empty until its first sign: it may still be waiting for others to arrive
    bool suspected = false;
    bool ended = false;
    std::optional<MessageHeader> call;  // what it last waited in
  };

  void compare(Rank rank, const Neighbour& neighbour, Outcome& outcome);
  void reply(const News& question, Outcome& outcome) const;
  void take_answer(const News& news, Outcome& outcome);
  void send(const News& news, Outcome& outcome) const;
  bool settle(Rank rank, const CallClaim& claim, Outcome& outcome);
  bool settle_on(const Error& why);
  void fault(News news, Outcome& outcome);
  void lost(Rank culprit, std::string text, Outcome& outcome);

  const Rank rank_;
  ControlOptions options_;
  std::map<Rank, Neighbour> neighbours_;
  std::vector<bool> departed_;
  Time last_tick_;
  std::optional<MessageHeader> call_;  // what this rank last waited in
  std::shared_ptr<const CallHistory> calls_;
  std::map<Rank, CallClaim> claims_;     // of ranks that are ahead, the last one
  std::map<Rank, std::uint32_t> alike_;  // how many calls are known to be the same
  bool faulted_ = false;
  Rank lost_ = -1;  // by that fault
  Answering answering_;
  Question question_;      // the last one asked, …
  Rank first_asked_ = -1;  // … of whom first …
  std::set<Rank> asked_;   // … and altogether
  std::optional<Finding> finding_;
};

}  // namespace ranvier::engine
