#include "transport/fair_share.h"

#include <algorithm>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

constexpr auto noise = 1ms;          // a queue of so much is none
constexpr int rounds_to_doubt = 16;  // two of the model's cycles, each of which empties the queue
constexpr auto least_doubt = 300ms;
constexpr double weight = 1.0 / 8;   // of a sample in what is smoothed
constexpr double asked_part = 0.5;   // of the queue, were it all one's own: so that it does not run dry
constexpr double alone_above = 0.9;  // a share of what is under way
constexpr double most_faster = 20;   // a line than oneself: what changes less is not measured
constexpr int samples_to_hear = 4;   // at least
constexpr int rounds_to_settle = 4;  // before the next of the first questions
constexpr auto between_questions = 1s;
constexpr int rounds_between = 8;
constexpr auto after_loss = 250ms;
constexpr double beta = 0.7;          // RFC 9438, 4.6
constexpr double growth_bytes = 800;  // a round trip: half a packet of Ethernet's, as RFC 9438, 4.3 has it
constexpr double pacing = 1.25;
// What flows that follow a model can queue: somewhat more than what the path holds, and groups of a millisecond.
constexpr double model_round_trips = 2.5, model_groups_s = 0.005;
constexpr double most_growth = 2;                            // at a question
constexpr double quiet_round_trips = 1.25, quiet_s = 0.001;  // so little waits that there is nothing to ask

double seconds(FairShare::Duration duration) { return std::chrono::duration<double>(duration).count(); }

FairShare::Duration duration(double seconds) {
  return std::chrono::duration_cast<FairShare::Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

// By Little's law so much of what is not acknowledged is not on its way back.
double FairShare::window() const { return (state_ == State::asking ? asking_window_ : window_) * whole_ / round_trip_; }

double FairShare::rate() const { return pacing * window() / whole_; }

double FairShare::line_rate() const {
  auto rates = rates_;
  const auto known = static_cast<std::ptrdiff_t>(std::min(answers_, rates.size()));
  std::ranges::sort(rates.begin(), rates.begin() + known);
  return rates[static_cast<std::size_t>(known / 2)];
}

void FairShare::sample(const Sample& sample) {
  if (sample.round_trip > Duration(0)) measure(sample);
  if (!measured_) return;
  if (sample.held_by_caller) {
    if (state_ == State::alone) empty_at_ = std::max(empty_at_, sample.now);
    if (state_ == State::asking) give_up_asking(sample.now);
    if (shared() && sample.now - busy_at_ > between_questions) leave(sample.now);
    return;
  }
  busy_at_ = sample.now;
  switch (state_) {
    case State::alone:
      if (sample.now - empty_at_ > std::max<Duration>(rounds_to_doubt * sample.least, least_doubt)) ask();
      break;
    case State::asking:
      listen(sample);
      break;
    case State::sharing:
      share(sample);
      break;
  }
}

void FairShare::measure(const Sample& sample) {
  const Duration there = sample.round_trip - sample.way_back;
  const double whole = seconds(sample.round_trip), round_trip = seconds(there);
  const double in_flight = static_cast<double>(sample.in_flight) * round_trip / whole;
  const double part = measured_ ? weight : 1;
  whole_ += (whole - whole_) * part;
  round_trip_ += (round_trip - round_trip_) * part;
  if (!sample.held_by_caller) in_flight_ += (in_flight - in_flight_) * part;
  least_ = seconds(sample.least);
  longest_ = std::max(round_trip, longest_ - (longest_ - round_trip) / 1024);
  own_most_ = shared() ? std::max(own_most_, sample.bandwidth) : sample.bandwidth;
  if (!measured_) empty_at_ = sample.now;
  measured_ = true;
  if (there <= sample.least + std::max<Duration>(sample.least / 8, noise))
    seen_empty(sample);
  else
    queued_at_ = sample.now;
}

// Others may be slow to take what was left to them, or gone.
void FairShare::seen_empty(const Sample& sample) {
  empty_at_ = std::max(empty_at_, sample.now);
  if (!shared()) return;
  if (state_ == State::asking) give_up_asking(sample.now);
  if (sample.now - queued_at_ > std::max<Duration>(rounds_to_doubt * sample.least, between_questions))
    leave(sample.now);
}

void FairShare::leave(Time now) {
  state_ = State::alone;
  answers_ = 0;
  share_ = 0;
  empty_at_ = now + between_questions;  // no doubts until then
}

void FairShare::share(const Sample& sample) {
  if (sample.lost && !yielded_ && round_trip_ > (least_ + longest_) / 2) {
    yielded_ = true;
    window_ *= beta;
    ask_at_ = std::min(ask_at_, sample.now + std::max<Duration>(after_loss, duration(4 * round_trip_)));
  } else if (sample.lost_much) {
    window_ *= beta;
  }
  if (sample.round_trip > Duration(0) && window_ < share_ && sample.now - grown_at_ >= sample.round_trip) {
    grown_at_ = sample.now;
    window_ += growth_bytes;
  }
  if (sample.now < ask_at_) return;
  if (answers_ >= rates_.size() && round_trip_ < quiet_round_trips * least_ + quiet_s)
    settle(sample.now, in_flight_, round_trip_);
  else
    ask();
}

void FairShare::ask() {
  state_ = State::asking;
  before_in_flight_ = in_flight_;
  before_round_trip_ = round_trip_;
  asking_window_ = before_in_flight_ * (1 - asked_part * (1 - least_ / before_round_trip_));
  settled_at_ = {};
  sum_in_flight_ = sum_round_trip_ = sum_whole_ = 0;
  count_ = 0;
}

void FairShare::give_up_asking(Time now) {
  state_ = State::sharing;
  window_ = before_in_flight_;
  share_ = std::max(share_, window_);
  ask_at_ = now + between_questions;
}

void FairShare::listen(const Sample& sample) {
  if (settled_at_ == Time()) {
    if (static_cast<double>(sample.in_flight) <= 1.05 * window()) settled_at_ = sample.now;
    return;
  }
  // Only of packets that left since then.
  if (sample.round_trip == Duration(0) || sample.now - sample.round_trip < settled_at_) return;
  sum_in_flight_ += static_cast<double>(sample.in_flight);
  sum_round_trip_ += seconds(sample.round_trip - sample.way_back);
  sum_whole_ += seconds(sample.round_trip);
  ++count_;
  const Duration heard = sample.now - settled_at_ - sample.round_trip;
  if (count_ >= samples_to_hear && heard > duration(before_round_trip_ / 4)) conclude(sample.now);
}

void FairShare::conclude(Time now) {
  const double less = before_in_flight_ - sum_in_flight_ / count_ * sum_round_trip_ / sum_whole_;
  const double shorter = before_round_trip_ - sum_round_trip_ / count_;
  const double own = before_in_flight_ / before_round_trip_;
  const double most = most_faster * own;
  rates_[answers_++ % rates_.size()] = less <= 0                ? own
                                       : shorter * most <= less ? most
                                                                : std::max(less / shorter, own_most_);
  if (answers_ < rates_.size()) {
    // Another's window may have closed just then; so one answer is no answer.
    state_ = State::sharing;
    window_ = share_ = before_in_flight_;
    ask_at_ = now + duration(rounds_to_settle * before_round_trip_);
  } else if (own > alone_above * line_rate()) {
    leave(now);
  } else {
    settle(now, before_in_flight_, before_round_trip_);
  }
}

void FairShare::settle(Time now, double in_flight, double round_trip) {
  const bool is_model = round_trip < model_round_trips * least_ + model_groups_s;
  share_ = line_rate() * round_trip / 2;
  window_ = std::min(share_, (is_model ? 1 : most_growth) * in_flight);
  state_ = State::sharing;
  yielded_ = false;
  const double pause = std::max(seconds(between_questions), rounds_between * round_trip);
  // Not at the same time as the other end, or as others.
  const auto chance = static_cast<double>(now.time_since_epoch().count() / 1000 % 256) / 256;
  ask_at_ = now + duration(pause * (0.5 + chance));
}

}  // namespace ranvier::transport
