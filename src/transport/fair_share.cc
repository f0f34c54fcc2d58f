#include "transport/fair_share.h"

#include <algorithm>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

constexpr auto noise = 1ms;          // a queue of so much is none
constexpr int rounds_to_judge = 16;  // two of the model's cycles, each of which empties the queue
constexpr auto least_judged = 300ms;
constexpr auto longest_gap = 1s;    // after which all is judged anew
constexpr double weight = 1.0 / 8;  // of a sample in what is smoothed
constexpr int least_seen = 16;      // packets that waited in a queue
constexpr double most_empty = 0.1;  // of the times that the queue was seen: another model drains it, too
constexpr double most_held = 0.5;   // of the times: else it is the caller who takes no more
// Of the line. A core that is late for a moment makes what one gets look like less than all: then it has to be so for a
// while.
constexpr double alone_above = 0.9, surely_not_above = 0.75;
constexpr int few_doubts = 2, enough_doubts = 4;
constexpr int remembered = 16;  // judgements: others who were there a moment ago come back
// The same of several flows of a job together: how many of them there are at a time nobody knows so well.
constexpr double surely_not_together = 0.5;
// What flows that follow a model can queue: somewhat more than what the path holds, and groups of a millisecond.
constexpr double model_round_trips = 2.5, model_groups_s = 0.012;
constexpr double starved_below = 0.8;  // of the share: others lose as little as they like, and leave no more
// Of packets: a flow that probes for more loses some to learn that there is none; more, and others do not yield.
constexpr double little_lost = 0.01, much_lost = 0.1;
constexpr double beta = 0.7, least_part = 0.25;
constexpr double regrowth = 1.05;  // at a judgement
constexpr double margin = 0.98;    // of half, so that two flows of this kind let the queue drain
constexpr double window_round_trips = 2;
// When others have gone the queue is empty, mostly; or they are slow to take what was left to them.
constexpr double mostly_empty = 0.5;
constexpr int rounds_unused = 50;

double seconds(FairShare::Duration duration) { return std::chrono::duration<double>(duration).count(); }

bool is_queue(const FairShare::Sample& sample) {
  return sample.round_trip - sample.way_back > sample.least + std::max<FairShare::Duration>(sample.least / 8, noise);
}

}  // namespace

double FairShare::rate() const { return margin * part_ * line_.rate() / (flows_ + 1); }

double FairShare::window() const { return window_round_trips * rate() * round_trip_; }

void FairShare::sample(const Sample& sample) {
  const bool queued = sample.round_trip > Duration(0) && is_queue(sample);
  // Only what waited shows what the line carries: lines that are limited by tokens let bursts pass at once after a
  // rest.
  if (sample.line > 0 && queued) line_.told(sample.line);
  flows_ = std::max(sample.flows, 1U);
  if (sample.round_trip > Duration(0))
    round_trip_ += (seconds(sample.round_trip) - round_trip_) * (round_trip_ > 0 ? weight : 1);
  if (sample.now - last_ > longest_gap) {
    shared_ = false;
    begin(sample.now);
  }
  last_ = sample.now;
  lasted_ = sample.now - began_;
  judge(sample);
}

void FairShare::begin(Time now) {
  began_ = now;
  ++judgements_;
  lasted_ = {};
  delivered_ = lost_ = 0;
  count_ = empty_ = held_ = 0;
  arrival_rates_ = round_trips_ = 0;
}

void FairShare::judge(const Sample& sample) {
  enough_ = std::max<Duration>(rounds_to_judge * sample.least, least_judged);
  if (shared_ && lasted_ < enough_ / 2) return;  // the others have not answered yet
  delivered_ += static_cast<double>(sample.acknowledged);
  lost_ += static_cast<double>(sample.lost);
  if (sample.round_trip > Duration(0) && sample.arrival_rate > 0) {
    ++count_;
    held_ += sample.held_by_caller ? 1 : 0;
    if (is_queue(sample)) {
      arrival_rates_ += sample.arrival_rate;
      round_trips_ += seconds(sample.round_trip - sample.way_back);
    } else {
      ++empty_;
    }
  }
  if (lasted_ < enough_) return;
  const double lost = lost_ / std::max(delivered_ + lost_, 1.0);
  const int queued = count_ - empty_;
  if (shared_) {
    alone_for_ = 0;
    unused_ = empty_ > mostly_empty * count_ ? unused_ + lasted_ : Duration(0);
    shared_ = unused_ == Duration(0) || unused_ < rounds_unused * sample.least;
    if (lost > much_lost) part_ = std::max(part_ * std::max(1 - lost, beta), least_part);
    if (lost < little_lost && part_ < 1) part_ = std::min(part_ * regrowth, 1.0);
  } else if (queued >= least_seen) {
    const double got = arrival_rates_ / queued, line = line_.rate(), share = line / (flows_ + 1);
    const bool is_model = round_trips_ <= queued * (model_round_trips * seconds(sample.least) + model_groups_s);
    const bool wants_more = held_ <= most_held * count_;
    const bool starves = wants_more && lost > little_lost && got < starved_below * share;
    const bool is_doubtful = empty_ <= most_empty * count_ && got * flows_ < alone_above * line;
    ++alone_for_;
    doubts_ = is_doubtful ? doubts_ + 1 : 0;
    const bool has_company = flows_ > 1 ? got * flows_ < surely_not_together * line
                                        : doubts_ >= (got >= surely_not_above * line ? enough_doubts
                                                      : alone_for_ < remembered      ? 1
                                                                                     : few_doubts);
    shared_ =
        starves || (is_doubtful && has_company && (got > share || (wants_more && (lost > little_lost || !is_model))));
    part_ = 1;
    unused_ = {};
  }
  begin(sample.now);
}

}  // namespace ranvier::transport
