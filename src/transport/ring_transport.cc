#include "transport/ring_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/cpu_set.h"
#include "ranvier/error.h"
#include "transport/doorbell.h"
#include "transport/lent_memory.h"
#include "transport/slot_ring.h"

namespace ranvier::transport {
namespace {

// A sleep without a barrier in the senders can miss one's last message; it then costs this much time.
constexpr std::chrono::nanoseconds longest_unfenced_sleep = std::chrono::milliseconds(1);

class RingTransport final : public Transport, public PeerMemory, public AnswersInPlace {
 public:
  explicit RingTransport(RingWorld world)
      : world_(std::move(world)),
        links_(world_.headers.size()),
        bell_(world_.headers[own()]->bell),
        memory_(std::make_shared<OwnMemory>(world_.headers[own()]->regions, world_.memory)) {
    SharedCores cores;
    for (std::size_t peer = 0; peer < links_.size(); ++peer) {
      InboxHeader& header = *world_.headers[peer];
      links_[peer].bell = &header.bell;
      links_[peer].lender = std::make_unique<LenderMemory>(static_cast<Rank>(peer), header.regions);
      for (Lane lane = 0; lane < lane_count; ++lane) {
        links_[peer].out[lane] = RingWriter(world_.layout.ring(world_.outbound[peer], lane));
        links_[peer].in[lane] = RingReader(world_.layout.ring(world_.inbound[peer], lane), 0, links_[peer].lender.get(),
                                           &links_[peer].out[lane]);
      }
      fenced_ = fenced_ && header.takes_barriers != 0;
      cores.add_rank(header.cpus);
    }
    ranks_per_core_ = cores.ranks_per_core();
  }

  Rank rank() const override { return world_.rank; }
  Rank world() const override { return static_cast<Rank>(links_.size()); }

  // Twenty empty polls (half a microsecond) catch an answer that is on its way; after that, giving the core away costs
  // no more than another thousand polls do. With more ranks than cores every poll keeps the one that is waited for from
  // running: 4 ranks on 2 cores took 1.9 us an operation when they yielded at once, 26 us after 1000 polls.
  TransportTraits traits() const override {
    return {.name = world_.name,
            .slice_bytes = world_.layout.slice_bytes(0),
            .buffered_bytes = world_.layout.slice_bytes(0),
            .ranks_per_core = ranks_per_core_,
            .polls_before_yield = ranks_per_core_ > 1 ? 0 : 20,
            .polls_before_wait = ranks_per_core_ > 1 ? 200 : 1000};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    Link& link = link_to(to, lane);
    const std::size_t accepted = link.out[lane].try_push(head, body);
    if (accepted > 0) ring(*link.bell);
    return accepted;
  }

  bool sent(Rank to, Lane lane) override { return lent(to, lane) == 0; }  // try_send copies

  PeerMemory* peer_memory() override { return this; }
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes) override { return memory_->allocate(bytes); }

  std::size_t try_lend(Rank to, Lane lane, ConstBytes head, ConstBytes body, bool asks) override {
    const auto lendable = body.size() < least_lent ? std::nullopt : memory_->find(body);
    if (!lendable) return asks ? try_ask(to, lane, head, body) : try_send(to, lane, head, body);
    Link& link = link_to(to, lane);
    const std::size_t accepted = link.out[lane].try_lend(head, *lendable);
    if (accepted > 0) ring(*link.bell);
    return accepted;
  }

  std::size_t lent(Rank to, Lane lane) override { return link_to(to, lane).out[lane].lent(); }

  AnswersInPlace* answers_in_place() override { return this; }
  std::uint32_t unanswered() const override { return slots_per_ring; }

  std::size_t try_ask(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    Link& link = link_to(to, lane);
    const std::size_t accepted = link.out[lane].try_push(head, body, true);
    if (accepted > 0) ring(*link.bell);
    return accepted;
  }

  Bytes answerable(Rank to, Lane lane, ConstBytes body) override {
    Link& link = link_to(to, lane);
    const Bytes place = link.in[lane].answerable(body);
    return !place.empty() && link.out[lane].has_room() ? place : Bytes();
  }

  // The slot is freed last: whoever finds it free also finds that it was answered.
  void answer(Rank to, Lane lane, ConstBytes head, Bytes body) override {
    Link& link = link_to(to, lane);
    link.out[lane].push_answer(head, link.in[lane].place_of(body));
    link.in[lane].pop_answered();
    ring(*link.bell);
  }

  ConstBytes try_recv(Rank from, Lane lane, Bytes) override { return link_to(from, lane).in[lane].peek(); }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    Link& link = link_to(from, lane);
    if (!link.in[lane].pop(bytes)) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // see ring()
    if (link.in[lane].writer_starved()) ring(*link.bell);
  }

  void wait(std::chrono::nanoseconds limit) override {
    if (cancelled_ || interrupted_.exchange(false) || has_news()) return;
    announce_starved(true);
    bell_.sleeping.exchange(1);
    if (fenced_)
      barrier_everywhere();
    else
      limit = std::min(limit, longest_unfenced_sleep);
    if (!interrupted_.exchange(false) && !has_news()) {
      futex_wait(bell_.sleeping, 1, limit);
      interrupted_.exchange(false);
    }
    bell_.sleeping.store(0, std::memory_order_relaxed);
    announce_starved(false);
  }

  void interrupt() override {
    interrupted_.store(true);
    wake(bell_);
  }

  void cancel() override {
    cancelled_ = true;
    memory_->withdraw();
  }

 private:
  struct Link {
    std::array<RingWriter, lane_count> out;
    std::array<RingReader, lane_count> in;
    Doorbell* bell = nullptr;              // of the peer
    std::unique_ptr<LenderMemory> lender;  // the peer's, for `in`
  };

  std::size_t own() const { return static_cast<std::size_t>(world_.rank); }

  Link& link_to(Rank peer, Lane lane) {
    if (cancelled_) [[unlikely]]
      throw Error(ErrorKind::aborted, fmt::format("rank {} used {} after it was cancelled; make a new communicator",
                                                  world_.rank, world_.name));
    const auto index = static_cast<std::size_t>(peer);
    if (index >= links_.size() || lane >= lane_count) [[unlikely]]
      throw Error(ErrorKind::usage, fmt::format("there is no lane {} to rank {} in a world of {} ranks with {} lanes",
                                                lane, peer, links_.size(), lane_count));
    return links_[index];
  }

  // Of all rings, since only the caller knows for which it waits. What it was once told of is no news: a message that
  // nobody wants yet must not keep the waiter from sleeping.
  bool has_news() {
    bool any = false;
    for (Link& link : links_) {
      for (auto& ring : link.in) any |= ring.has_news();
      for (auto& ring : link.out) any |= ring.has_news();
    }
    return any;
  }

  void announce_starved(bool starving) {
    for (Link& link : links_)
      for (auto& ring : link.out) ring.announce_starved(starving);
  }

  const RingWorld world_;
  std::vector<Link> links_;
  Doorbell& bell_;
  const std::shared_ptr<OwnMemory> memory_;
  bool fenced_ = true;  // all ranks take barriers
  int ranks_per_core_ = 1;
  bool cancelled_ = false;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

std::unique_ptr<Transport> ring_transport(RingWorld world) { return std::make_unique<RingTransport>(std::move(world)); }

}  // namespace ranvier::transport
