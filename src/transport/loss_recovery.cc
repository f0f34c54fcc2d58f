#include "transport/loss_recovery.h"

#include <algorithm>

namespace ranvier::transport {
namespace {

constexpr std::size_t initial_records = 1024;  // a power of two; it doubles
constexpr int most_reordering_steps = 16;      // of a quarter round trip each
constexpr int most_backoff = 6;
constexpr auto longest_timeout = std::chrono::milliseconds(500);
constexpr auto least_reordering = std::chrono::microseconds(200);  // threads of one host trade places for so long
// A packet that was taken for lost is remembered for so many round trips: long enough to see that it was only late.
constexpr int round_trips_remembered = 3;

}  // namespace

LossRecovery::LossRecovery() : packets_(initial_records) {
  acknowledged_now_.reserve(initial_records);
  lost_now_.reserve(initial_records);
}

void LossRecovery::sent(SentPacket packet, Time now) {
  if (next_ - oldest_ == packets_.size()) {
    std::vector<SentPacket> larger(2 * packets_.size());
    for (std::uint64_t number = oldest_; number < next_; ++number) larger[number & (larger.size() - 1)] = at(number);
    packets_.swap(larger);
  }
  if (in_flight_ == 0) {
    first_sent_at_ = delivered_at_ = now;
    arrived_us_ = 0;
  }
  packet.number = next_;
  packet.sent_at = now;
  packet.delivered = delivered_;
  packet.delivered_at = delivered_at_;
  packet.first_sent_at = first_sent_at_;
  packet.arrived_us = arrived_us_;
  packet.held_by_caller = held_by_caller_until_ > 0;
  packet.state = SentPacket::State::under_way;
  at(next_++) = packet;
  in_flight_ += packet.bytes;
  last_sent_at_ = now;
}

void LossRecovery::held_by_caller() { held_by_caller_until_ = std::max<std::uint64_t>(delivered_ + in_flight_, 1); }

LossRecovery::Duration LossRecovery::timeout() const {
  return std::min<Duration>(round_trip_.timeout(most_delay) * (1 << std::min(silences_, most_backoff)),
                            std::max<Duration>(longest_timeout, 2 * round_trip_.smoothed()));
}

LossRecovery::Duration LossRecovery::reordering_window() const {
  const Duration window = std::max<Duration>(round_trip_.least() / 4 * reordering_steps_, least_reordering);
  return std::min(window, std::max<Duration>(round_trip_.smoothed(), least_reordering));
}

void LossRecovery::acknowledge(SentPacket& packet, Time now) {
  if (packet.state == SentPacket::State::lost) {
    // It was only late.
    reordering_steps_ = std::min(reordering_steps_ + 1, most_reordering_steps);
    --packets_lost_;
  } else {
    in_flight_ -= packet.bytes;
  }
  packet.state = SentPacket::State::acknowledged;
  delivered_ += packet.bytes;
  delivered_at_ = now;
  if (acknowledged_now_.empty() || packet.number > acknowledged_now_[newest_in_call_].number)
    newest_in_call_ = acknowledged_now_.size();
  acknowledged_now_.push_back(packet);
}

std::optional<LossRecovery::News> LossRecovery::acknowledge(std::span<const NumberRange> ranges, Duration delay,
                                                            std::uint32_t arrived_us, Time now) {
  if (ranges.empty() || ranges.front().end > next_) return std::nullopt;
  acknowledged_now_.clear();
  lost_now_.clear();
  const std::uint64_t delivered_before = delivered_;
  for (const NumberRange& range : ranges) {
    for (std::uint64_t number = std::max(range.begin, oldest_); number < range.end; ++number)
      if (at(number).state != SentPacket::State::acknowledged) acknowledge(at(number), now);
    if (range.begin <= first_under_way_) break;  // what lies before has been told
  }

  News news;
  news.sample.now = now;
  if (!acknowledged_now_.empty()) {
    const SentPacket& newest = acknowledged_now_[newest_in_call_];
    silences_ = 0;
    probe_ = false;
    if (newest.number > newest_acknowledged_) {
      news.sample.round_trip = std::max<Duration>(now - newest.sent_at, Duration(1));
      round_trip_.sample(news.sample.round_trip, std::min<Duration>(delay, most_delay));
      if (newest.number + 1 == ranges.front().end)
        news.sample.way_back =
            way_back_.sample(newest.sent_at, arrived_us, now, news.sample.round_trip - round_trip_.least());
      newest_acknowledged_ = newest.number;
      newest_departure_ = newest.sent_at;
    }
    const Duration sending = newest.sent_at - newest.first_sent_at;
    const Duration acknowledging = now - newest.delivered_at;
    const bool is_newest = newest.number + 1 == ranges.front().end;  // whose arrival is told
    const Duration arriving = std::chrono::microseconds(
        is_newest && newest.arrived_us != 0 ? static_cast<std::int32_t>(arrived_us - newest.arrived_us) : 0);
    if (is_newest) arrived_us_ = arrived_us;
    const Duration interval = std::max({sending, arriving, acknowledging});
    // Over less than a round trip a few packets that come together would look like a fast path.
    if (interval >= round_trip_.least() && interval > Duration(0))
      news.sample.rate =
          static_cast<double>(delivered_ - newest.delivered) / std::chrono::duration<double>(interval).count();
    if (arriving >= round_trip_.least() && arriving > Duration(0))
      news.sample.arrival_rate =
          static_cast<double>(delivered_ - newest.delivered) / std::chrono::duration<double>(arriving).count();
    news.sample.held_by_caller = newest.held_by_caller;
    news.sample.delivered_before = newest.delivered;
    first_sent_at_ = newest.sent_at;
    if (delivered_ > held_by_caller_until_) held_by_caller_until_ = 0;
  }
  find_lost(now);
  news.acknowledged = acknowledged_now_;
  news.lost = lost_now_;
  news.sample.delivered = delivered_;
  news.sample.acknowledged = delivered_ - delivered_before;
  for (const SentPacket& packet : lost_now_)
    if (!packet.sizes) news.sample.lost += packet.bytes;
  news.sample.in_flight = in_flight_;
  forget(now);
  return news;
}

void LossRecovery::find_lost(Time now) {
  loss_due_ = Time::max();
  const Duration limit = round_trip_.latest() + reordering_window();
  while (first_under_way_ < next_ && at(first_under_way_).state != SentPacket::State::under_way) ++first_under_way_;
  for (std::uint64_t number = first_under_way_; number < newest_acknowledged_; ++number) {
    SentPacket& packet = at(number);
    if (packet.state != SentPacket::State::under_way) continue;
    if (packet.sent_at + limit > now) {
      loss_due_ = packet.sent_at + limit;
      break;  // those behind it left later
    }
    packet.state = SentPacket::State::lost;
    in_flight_ -= packet.bytes;
    ++packets_lost_;
    lost_now_.push_back(packet);
  }
  while (first_under_way_ < next_ && at(first_under_way_).state != SentPacket::State::under_way) ++first_under_way_;
}

void LossRecovery::forget(Time now) {
  const Duration remembered = round_trips_remembered * round_trip_.smoothed();
  while (oldest_ < first_under_way_) {
    const SentPacket& packet = at(oldest_);
    if (packet.state == SentPacket::State::lost && packet.sent_at + remembered > now) break;
    ++oldest_;
  }
}

LossRecovery::Time LossRecovery::due() const {
  if (in_flight_ == 0) return Time::max();
  return std::min(loss_due_, probe_ ? Time::max() : last_sent_at_ + timeout());
}

LossRecovery::News LossRecovery::on_time(Time now) {
  acknowledged_now_.clear();
  lost_now_.clear();
  if (loss_due_ <= now) {
    find_lost(now);
    forget(now);
  } else if (in_flight_ > 0 && !probe_ && last_sent_at_ + timeout() <= now) {
    ++silences_;
    probe_ = true;
  }
  News news;
  news.lost = lost_now_;
  news.sample.now = now;
  news.sample.delivered = delivered_;
  for (const SentPacket& packet : lost_now_)
    if (!packet.sizes) news.sample.lost += packet.bytes;
  news.sample.in_flight = in_flight_;
  return news;
}

std::optional<SentPacket> LossRecovery::oldest_under_way() const {
  if (first_under_way_ >= next_ || at(first_under_way_).state != SentPacket::State::under_way) return std::nullopt;
  return at(first_under_way_);
}

}  // namespace ranvier::transport
