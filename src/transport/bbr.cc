#include "transport/bbr.h"

#include <algorithm>
#include <cmath>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

// 4 ln 2: the least that doubles the rate each round trip while queues are empty (draft-ietf-ccwg-bbr, 5.6.2).
constexpr double startup_gain = 2.77;
constexpr double drain_gain = 0.35;
constexpr double window_gain = 2;
constexpr std::array gains{1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};  // a round trip each
constexpr double margin = 0.99;  // of the estimated rate: what is measured too high then drains by itself
constexpr double growth = 1.25;  // of the rate, in each of three rounds, or the pipe is full
constexpr int rounds_to_be_full = 3;
// The paper keeps it for 10 s. In a deep queue that TCP's CUBIC keeps full, a flow that holds on to the path's own
// round trip gets a tenth of it, and its fair share once it takes the others' queue for part of the path (R. Ware, M.
// K. Mukerjee, S. Seshan, J. Sherry, "Modeling BBR's Interactions with Loss-Based Congestion Control", IMC 2019): jobs
// are too short to wait for that.
constexpr auto round_trip_kept = 5s;
constexpr auto round_trip_noise = 1ms;  // a queue or a late timer of so much is none
constexpr auto round_trip_probe = 200ms;
constexpr double most_loss = 0.02;
constexpr std::size_t packets_to_judge = 100;  // of fewer, 1 % lost at random is too often more than 2 %
constexpr double beta = 0.7;
constexpr auto ceiling_held = 1s;  // others need as long to take what was left to them
constexpr double ceiling_growth = 1.25;
constexpr std::size_t initial_packets = 10;  // RFC 6928
constexpr std::size_t least_packets = 4;
constexpr double longest_pause_s = 0.1;  // of a window, beside others
constexpr double unknown_round_trip_s = 0.001;
constexpr double group_seconds = 0.001;
constexpr double most_surplus_seconds = 0.010;  // of the rate: a receiver that waits for a core, not a queue
constexpr double most_group = 64 << 10;
constexpr std::size_t train_packets = 8;  // of 1 Gbit/s what PacketTrain needs, at least

double seconds(Bbr::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

double Bbr::bandwidth() const { return *std::ranges::max_element(rates_); }

std::size_t Bbr::least_group() const {
  const auto bytes = static_cast<std::size_t>(std::min(rate_to_send() * group_seconds, most_group));
  return std::max(bytes, 2 * packet_);
}

void Bbr::conclude() {
  pacing_rate_ = rate_to_send();
  const std::size_t group = least_group();
  group_bytes_ = asks_for_line() ? std::max(group, train_packets * packet_) : group;
  window_ = most_under_way();
}

double Bbr::greatest_surplus() const { return *std::ranges::max_element(surpluses_); }

double Bbr::product() const { return bandwidth() * seconds(least_round_trip_); }

double Bbr::arrived_unknown() const { return latest_rate_ * seconds(way_back_); }

double Bbr::gain() const {
  switch (phase_) {
    case Phase::startup:
      return startup_gain;
    case Phase::drain:
      return drain_gain;
    case Phase::probe_bandwidth:
      return gains[gain_index_];
    case Phase::probe_round_trip:
      return 1;
  }
  return 1;
}

double Bbr::rate_to_send() const {
  // Never nothing: who sends nothing hears nothing either.
  if (share_.shared()) return std::max(share_.rate(), static_cast<double>(least_packets * packet_) / longest_pause_s);
  if (bandwidth() > 0) return margin * gain() * bandwidth();
  return startup_gain * static_cast<double>(initial_packets * packet_) / unknown_round_trip_s;
}

std::size_t Bbr::most_under_way() const {
  const std::size_t least = least_packets * packet_;
  if (share_.shared()) return std::max(least, static_cast<std::size_t>(share_.window()));
  if (bandwidth() <= 0) return initial_packets * packet_;
  const double factor = phase_ == Phase::startup ? startup_gain : window_gain;
  // More for groups: of packets that leave together, and of acknowledgements that come together.
  double bytes = factor * product() + 3 * static_cast<double>(least_group()) + greatest_surplus();
  if (phase_ == Phase::probe_round_trip) return least;  // so that no queue is one's own
  if (ceiling_ > 0) bytes = std::min(bytes, ceiling_);
  bytes += arrived_unknown();
  return std::max(least, static_cast<std::size_t>(bytes));
}

Bbr::Duration Bbr::queued(std::size_t in_flight) const {
  if (shared() || bandwidth() <= 0) return {};
  const double bytes = static_cast<double>(in_flight) - arrived_unknown() - product();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::max(bytes, 0.0) / bandwidth()));
}

void Bbr::acknowledged(const Sample& sample) {
  count_round(sample);
  learn(sample);
  count_surplus(sample);
  if (round_began_) bound_by_loss(sample.now);
  look_for_others(sample);
  change_phase(sample);
  conclude();
}

void Bbr::look_for_others(const Sample& sample) {
  FairShare::Sample seen;
  seen.now = sample.now;
  if (least_round_trip_ > Duration(0)) seen.round_trip = sample.round_trip;
  seen.way_back = sample.way_back;
  seen.least = least_round_trip_;
  seen.acknowledged = sample.acknowledged;
  seen.line = sample.line;
  seen.flows = sample.flows;
  seen.lost = sample.lost;
  seen.held_by_caller = sample.held_by_caller || !full_;
  seen.arrival_rate = phase_ == Phase::probe_round_trip ? 0 : sample.arrival_rate;
  share_.sample(seen);
  if (share_.shared()) least_seen_at_ = sample.now;
}

// A round is over when a packet that was sent in it has been acknowledged.
void Bbr::count_round(const Sample& sample) {
  round_delivered_ += sample.acknowledged;
  round_lost_ += sample.lost;
  round_most_in_flight_ = std::max(round_most_in_flight_, sample.in_flight + sample.acknowledged + sample.lost);
  round_began_ = sample.acknowledged > 0 && sample.delivered_before >= round_ends_at_;
  if (!round_began_) return;
  round_ends_at_ = sample.delivered;
  ++round_;
  // What the caller held back says nothing of the path, and neither does it make it forget.
  if (!round_held_by_caller_) rates_[round_ % rounds_kept] = 0;
  round_held_by_caller_ = sample.held_by_caller;
}

void Bbr::learn(const Sample& sample) {
  if (sample.rate > 0 && (!sample.held_by_caller || sample.rate > bandwidth())) {
    double& now = rates_[round_ % rounds_kept];
    now = std::max(now, sample.rate);
  }
  if (sample.rate > 0) latest_rate_ = std::min(sample.rate, bandwidth());
  if (sample.round_trip <= Duration(0)) return;
  way_back_ = sample.way_back;
  const bool first = least_round_trip_ == Duration(0);
  const bool stale = !first && sample.now - least_seen_at_ > round_trip_kept;
  // After a pause the queue is as empty as it will be.
  if (first || sample.round_trip <= least_round_trip_ || (stale && sample.held_by_caller)) {
    least_round_trip_ = sample.round_trip;
    least_seen_at_ = sample.now;
  } else if (sample.round_trip <= least_round_trip_ + std::max<Duration>(least_round_trip_ / 8, round_trip_noise)) {
    least_seen_at_ = sample.now;
  } else if (stale && phase_ != Phase::probe_round_trip && full_) {
    phase_ = Phase::probe_round_trip;
    probing_round_trip_ = false;
  }
}

// Receivers that come late acknowledge much at once; without credit for it the path would stand still until they do
// (draft-ietf-ccwg-bbr, 5.5.9). Counted from when acknowledgements last were behind the rate.
void Bbr::count_surplus(const Sample& sample) {
  if (round_began_) surpluses_[round_ % rounds_kept] = 0;
  const double expected = bandwidth() * seconds(sample.now - counted_since_);
  if (static_cast<double>(counted_) <= expected) {
    counted_ = 0;
    counted_since_ = sample.now;
  }
  counted_ += sample.acknowledged;
  const double surplus = static_cast<double>(counted_) - bandwidth() * seconds(sample.now - counted_since_);
  double& most = surpluses_[round_ % rounds_kept];
  most = std::max(most, std::min(surplus, bandwidth() * most_surplus_seconds));
}

void Bbr::bound_by_loss(Time now) {
  if (round_delivered_ + round_lost_ < packets_to_judge * packet_) return;
  // Three standard deviations above what a binomial of that loss would show.
  const double packets = static_cast<double>(round_delivered_ + round_lost_) / static_cast<double>(packet_);
  const double lost = static_cast<double>(round_lost_) / static_cast<double>(packet_);
  const bool heavy = lost > most_loss * packets + 3 * std::sqrt(most_loss * packets);
  if (heavy) {
    const double under_way = static_cast<double>(round_most_in_flight_);
    const double before = ceiling_ > 0 ? std::min(ceiling_, under_way) : under_way;
    // But what the rate itself needs is left: less would lower the rate as well, round by round, and the queue may be
    // full of the packets of others, or the path lose so many at random.
    ceiling_ = std::max(beta * before, product() + 2 * static_cast<double>(least_group()));
    ceiling_at_ = now;
    if (phase_ == Phase::startup) full_ = true;
  } else if (ceiling_ > 0 && now - ceiling_at_ > ceiling_held) {
    ceiling_ *= ceiling_growth;
    if (ceiling_ > 2 * window_gain * product()) ceiling_ = 0;
  }
  round_delivered_ = round_lost_ = round_most_in_flight_ = 0;
}

void Bbr::next_gain(Time now) {
  gain_index_ = (gain_index_ + 1) % gains.size();
  gain_since_ = now;
}

void Bbr::change_phase(const Sample& sample) {
  const auto enter_probe_bandwidth = [&] {
    phase_ = Phase::probe_bandwidth;
    gain_index_ = 2 + round_ % (gains.size() - 2);  // flows that began together should not probe together
    gain_since_ = sample.now;
  };
  const double under_way = std::max(static_cast<double>(sample.in_flight) - arrived_unknown(), 0.0);
  switch (phase_) {
    case Phase::startup:
      if (round_began_ && !sample.held_by_caller && !full_) {
        if (bandwidth() >= growth * full_rate_) {
          full_rate_ = bandwidth();
          rounds_without_growth_ = 0;
        } else if (++rounds_without_growth_ >= rounds_to_be_full) {
          full_ = true;
        }
      }
      if (full_) phase_ = Phase::drain;
      break;
    case Phase::drain:
      if (under_way <= product()) enter_probe_bandwidth();
      break;
    case Phase::probe_bandwidth: {
      const bool passed = sample.now - gain_since_ > least_round_trip_;
      const double gain = gains[gain_index_];
      // Faster until the queue has really been tried, slower no longer than until it is empty.
      if (gain > 1 ? passed && (sample.lost > 0 || sample.held_by_caller || under_way >= gain * product() * 0.9)
                   : passed || (gain < 1 && under_way <= product()))
        next_gain(sample.now);
      break;
    }
    case Phase::probe_round_trip:
      if (!probing_round_trip_ && sample.in_flight <= most_under_way()) {
        probing_round_trip_ = true;
        probe_round_trip_until_ = sample.now + round_trip_probe;
        least_round_trip_ = sample.round_trip > Duration(0) ? sample.round_trip : least_round_trip_;
      }
      if (probing_round_trip_ && sample.now >= probe_round_trip_until_) {
        least_seen_at_ = sample.now;
        enter_probe_bandwidth();
      }
      break;
  }
}

}  // namespace ranvier::transport
