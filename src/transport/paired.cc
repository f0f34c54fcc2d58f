#include "transport/paired.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

using Clock = std::chrono::steady_clock;

// One thread cannot sleep on a futex and on a socket at once. Mostly it need not: callers poll whatever they wait for
// once more before they sleep, so if all that was refused lies on one side, that side's sleep serves. Where both sides
// are waited for, it naps on one and looks at the other in turn; naps double while nothing comes.
constexpr std::chrono::nanoseconds first_nap = std::chrono::microseconds(50);
constexpr std::chrono::nanoseconds longest_nap = std::chrono::milliseconds(1);

class PairedTransport final : public Transport, public PeerMemory, public AnswersInPlace {
 public:
  PairedTransport(std::unique_ptr<Transport> inside, std::vector<Rank> local, std::unique_ptr<Transport> between)
      : inside_(std::move(inside)),
        between_(std::move(between)),
        local_(std::move(local)),
        memory_(inside_->peer_memory()),
        answers_(inside_->answers_in_place()),
        name_(fmt::format("{}+{}", inside_->traits().name, between_->traits().name)),
        unsent_(local_.size() * lane_count) {}

  Rank rank() const override { return between_->rank(); }
  Rank world() const override { return between_->world(); }

  TransportTraits traits() const override {
    const TransportTraits in = inside_->traits(), out = between_->traits();
    return {.name = name_,
            .slice_bytes = std::min(in.slice_bytes, out.slice_bytes),
            .buffered_bytes = std::min(in.buffered_bytes, out.buffered_bytes),
            .ranks_per_core = std::max(in.ranks_per_core, out.ranks_per_core),
            .polls_before_yield = std::min(in.polls_before_yield, out.polls_before_yield),
            .polls_before_wait = std::min(in.polls_before_wait, out.polls_before_wait)};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    if (const Rank peer = local(to); peer >= 0) return note(inside_->try_send(peer, lane, head, body), wants_inside_);
    const std::size_t accepted = note(between_->try_send(to, lane, head, body), wants_between_);
    if (memory_ != nullptr) unsent_[index(to, lane)] += accepted;
    return accepted;
  }

  bool sent(Rank to, Lane lane) override {
    const Rank peer = local(to);
    const bool done = peer >= 0 ? inside_->sent(peer, lane) : between_->sent(to, lane);
    if (!done) (peer >= 0 ? wants_inside_ : wants_between_) = true;
    return done;
  }

  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override {
    const Rank peer = local(from);
    const ConstBytes view = peer >= 0 ? inside_->try_recv(peer, lane, into) : between_->try_recv(from, lane, into);
    note(view.size(), peer >= 0 ? wants_inside_ : wants_between_);
    return view;
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    if (const Rank peer = local(from); peer >= 0)
      inside_->release(peer, lane, bytes);
    else
      between_->release(from, lane, bytes);
  }

  PeerMemory* peer_memory() override { return memory_ == nullptr ? nullptr : this; }
  VendorCollectives* vendor_collectives() override { return between_->vendor_collectives(); }
  std::optional<PacketCounts> packet_counts() const override { return between_->packet_counts(); }
  std::optional<std::chrono::steady_clock::time_point> last_sign(Rank from) override {
    return local(from) >= 0 ? std::nullopt : between_->last_sign(from);
  }

  std::shared_ptr<std::byte[]> allocate(std::size_t bytes) override { return memory_->allocate(bytes); }

  // To another host nothing is lent: it is sent, and counts as lent until it may be overwritten.
  std::size_t try_lend(Rank to, Lane lane, ConstBytes head, ConstBytes body, bool asks) override {
    if (const Rank peer = local(to); peer >= 0)
      return note(memory_->try_lend(peer, lane, head, body, asks), wants_inside_);
    return try_send(to, lane, head, body);
  }

  std::size_t lent(Rank to, Lane lane) override {
    std::size_t left = 0;
    if (const Rank peer = local(to); peer >= 0) {
      left = memory_->lent(peer, lane);
      wants_inside_ = wants_inside_ || left > 0;
    } else {
      std::size_t& unsent = unsent_[index(to, lane)];
      if (unsent > 0 && sent(to, lane)) unsent = 0;
      left = unsent;
    }
    return left;
  }

  AnswersInPlace* answers_in_place() override { return answers_ == nullptr ? nullptr : this; }
  std::uint32_t unanswered() const override { return answers_->unanswered(); }

  std::size_t try_ask(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    if (const Rank peer = local(to); peer >= 0) return note(answers_->try_ask(peer, lane, head, body), wants_inside_);
    return try_send(to, lane, head, body);
  }

  Bytes answerable(Rank to, Lane lane, ConstBytes body) override {
    const Rank peer = local(to);
    return peer >= 0 ? answers_->answerable(peer, lane, body) : Bytes();
  }

  void answer(Rank to, Lane lane, ConstBytes head, Bytes body) override {
    answers_->answer(local(to), lane, head, body);
  }

  void wait(std::chrono::nanoseconds limit) override {
    const bool inside = std::exchange(wants_inside_, false), between = std::exchange(wants_between_, false);
    if (!between && inside) return inside_->wait(limit);
    if (between && !inside) return between_->wait(limit);
    const auto nap = std::min({limit, longest_nap, first_nap * (1 << std::min(idle_, 10))});
    ++idle_;
    turn_ = !turn_;
    (turn_ ? inside_ : between_)->wait(nap);
  }

  // Who waits for both asks again.
  bool expect(std::span<const Expected> all) override {
    return std::ranges::all_of(all, [&](const Expected& each) { return local(each.from) < 0; }) &&
           between_->expect(all);
  }

  void interrupt() override {
    inside_->interrupt();
    between_->interrupt();
  }

  void cancel() override {
    inside_->cancel();
    between_->cancel();
  }
  void close() override {
    inside_->close();
    between_->close();
  }

 private:
  static std::size_t index(Rank peer, Lane lane) { return static_cast<std::size_t>(peer) * lane_count + lane; }

  // Of the rank inside; -1 for those of other hosts, and for those that `between` has to refuse.
  Rank local(Rank rank) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < local_.size() ? local_[static_cast<std::size_t>(rank)] : -1;
  }

  std::size_t note(std::size_t moved, bool& wanted) {
    if (moved == 0)
      wanted = true;
    else
      idle_ = 0;
    return moved;
  }

  const std::unique_ptr<Transport> inside_;
  const std::unique_ptr<Transport> between_;
  const std::vector<Rank> local_;
  PeerMemory* const memory_;       // of `inside_`
  AnswersInPlace* const answers_;  // likewise
  const std::string name_;
  std::vector<std::size_t> unsent_;  // bytes accepted for a peer and lane since all of them were sent
  bool wants_inside_ = false;        // something on that side was refused since the last wait
  bool wants_between_ = false;
  bool turn_ = false;  // which side the last nap was on
  int idle_ = 0;       // naps since something moved
};

// Texts between ranks that have nothing but lanes: a length, then the text.
class Letters {
 public:
  Letters(Transport& transport, const WorldInfo& info, Clock::time_point deadline)
      : transport_(transport), info_(info), deadline_(deadline) {}

  void post(Rank to, const std::string& text) {
    const auto length = static_cast<std::uint32_t>(text.size());
    const auto head = std::as_bytes(std::span(&length, 1));
    ConstBytes body = std::as_bytes(std::span(text));
    std::size_t accepted = 0;
    await(to, [&] { return (accepted = transport_.try_send(to, message_lane, head, body)) > 0; });
    body = body.subspan(accepted - head.size());
    while (!body.empty())
      await(to, [&] {
        accepted = transport_.try_send(to, message_lane, {}, body);
        body = body.subspan(accepted);
        return accepted > 0;
      });
    await(to, [&] { return transport_.sent(to, message_lane); });
  }

  std::string read(Rank from) {
    std::uint32_t length = 0;
    const std::string head = take(from, sizeof length);
    std::memcpy(&length, head.data(), sizeof length);
    if (length > most) throw Error(ErrorKind::mismatch, fmt::format("rank {} sent no address", from), from);
    return take(from, length);
  }

 private:
  static constexpr std::uint32_t most = 4096;

  std::string take(Rank from, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) {
      ConstBytes view;
      await(from, [&] { return !(view = transport_.try_recv(from, message_lane, {})).empty(); });
      const std::size_t used = std::min(view.size(), bytes - text.size());
      text.append(reinterpret_cast<const char*>(view.data()), used);
      transport_.release(from, message_lane, used);
    }
    return text;
  }

  template <class Condition>
  void await(Rank peer, Condition&& holds) {
    while (!holds()) {
      const auto left = deadline_ - Clock::now();
      if (left <= left.zero())
        throw Error(ErrorKind::timeout,
                    fmt::format("rank {} did not exchange the address of its shared memory with rank {} in time; see "
                                "why it is late, or allow more time",
                                peer, transport_.rank()),
                    peer);
      info_.check_peers();
      transport_.wait(std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(10)));
    }
  }

  Transport& transport_;
  const WorldInfo& info_;
  const Clock::time_point deadline_;
};

}  // namespace

std::unique_ptr<Transport> paired_transport(std::unique_ptr<Transport> inside, std::vector<Rank> local,
                                            std::unique_ptr<Transport> between) {
  return std::make_unique<PairedTransport>(std::move(inside), std::move(local), std::move(between));
}

std::unique_ptr<Transport> paired_transport(std::unique_ptr<Transport> between, const std::vector<std::string>& hosts,
                                            const WorldInfo& info, Clock::time_point deadline) {
  const Rank self = info.rank;
  std::vector<Rank> members, local;
  for (const std::string& host : hosts) {
    const bool shared = host == hosts[static_cast<std::size_t>(self)];
    local.push_back(shared ? static_cast<Rank>(members.size()) : -1);
    if (shared) members.push_back(static_cast<Rank>(local.size()) - 1);
  }
  const auto endpoint = shm_endpoint({.rank = local[static_cast<std::size_t>(self)],
                                      .world = static_cast<Rank>(members.size()),
                                      .epoch = info.epoch,
                                      .check_peers = info.check_peers});
  Letters letters(*between, info, deadline);
  std::vector<std::string> addresses(members.size());
  for (const Rank peer : members)
    if (peer != self) letters.post(peer, endpoint->address());
  for (std::size_t i = 0; i < members.size(); ++i)
    addresses[i] = members[i] == self ? endpoint->address() : letters.read(members[i]);
  return paired_transport(endpoint->connect(addresses, deadline), std::move(local), std::move(between));
}

}  // namespace ranvier::transport
