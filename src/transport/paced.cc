#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/token_bucket.h"

namespace ranvier {
namespace {

using Clock = std::chrono::steady_clock;

// What may be sent at once after a pause: enough that a thread that sleeps a scheduler's tick too long loses no rate,
// little enough that a step of training still sees the slow link.
constexpr double burst_seconds = 0.004;
constexpr double slice_seconds = 0.002;
constexpr std::size_t smallest_slice = 1024;

class PacedTransport final : public Transport {
 public:
  PacedTransport(std::unique_ptr<Transport> inner, double bytes_per_second)
      : inner_(std::move(inner)),
        traits_(inner_->traits()),
        bucket_(bytes_per_second, bytes_per_second * burst_seconds, Clock::now()) {
    const auto most = static_cast<std::size_t>(std::min(bytes_per_second * slice_seconds, 0x1p30));
    traits_.slice_bytes = std::min(traits_.slice_bytes, std::max(smallest_slice, std::bit_floor(most)));
    // Whoever waits for a slow link sleeps early: spinning would take the core from those who compute.
    traits_.polls_before_yield = 0;
    traits_.polls_before_wait = std::min(traits_.polls_before_wait, 20);
  }

  Rank rank() const override { return inner_->rank(); }
  Rank world() const override { return inner_->world(); }
  TransportTraits traits() const override { return traits_; }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    const Way way{to, lane};
    // A link serves its connections in turn: without that whoever asks first would have all tokens, always.
    const bool another_waits = way == last_ && std::exchange(another_waits_, false);
    if (another_waits || !bucket_.has_tokens(Clock::now())) {
      another_waits_ |= way != last_;
      held_back_ = true;
      return 0;
    }
    const std::size_t accepted =
        inner_->try_send(to, lane, head, body.first(std::min(body.size(), traits_.slice_bytes)));
    bucket_.spend(accepted);
    if (accepted > 0) last_ = way;
    return accepted;
  }
  bool sent(Rank to, Lane lane) override { return inner_->sent(to, lane); }
  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override { return inner_->try_recv(from, lane, into); }
  void release(Rank from, Lane lane, std::size_t bytes) override { inner_->release(from, lane, bytes); }

  std::optional<PacketCounts> packet_counts() const override { return inner_->packet_counts(); }
  std::optional<std::chrono::steady_clock::time_point> last_sign(Rank from) override { return inner_->last_sign(from); }

  void wait(std::chrono::nanoseconds limit) override {
    if (std::exchange(held_back_, false)) {
      if (bucket_.has_tokens(Clock::now())) return;
      limit = std::min(limit, bucket_.until_tokens());
    }
    inner_->wait(limit);
  }
  bool expect(std::span<const Expected> all) override { return inner_->expect(all); }
  void interrupt() override { inner_->interrupt(); }
  void cancel() override { inner_->cancel(); }
  void close() override { inner_->close(); }

 private:
  const std::unique_ptr<Transport> inner_;
  TransportTraits traits_;
  transport::TokenBucket bucket_;
  bool held_back_ = false;  // a send was refused since the last wait()

  using Way = std::pair<Rank, Lane>;
  Way last_{-1, 0};             // that sent
  bool another_waits_ = false;  // has been refused since then
};

}  // namespace

std::unique_ptr<Transport> paced(std::unique_ptr<Transport> inner, double bytes_per_second) {
  if (!std::isfinite(bytes_per_second) || bytes_per_second <= 0)
    throw Error(ErrorKind::usage,
                fmt::format("a link cannot be paced to {} bytes per second; give a rate above 0, as in "
                            "200Mbit",
                            bytes_per_second));
  return std::make_unique<PacedTransport>(std::move(inner), bytes_per_second);
}

}  // namespace ranvier
