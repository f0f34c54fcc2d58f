#include "ranvier/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

namespace ranvier {
namespace {

constexpr Rank most_ranks = 64;
constexpr Rank ranks_of_large_worlds = 9;

// Of what the busiest rank moves beyond the mean while ranks share cores: the others wait for it now and then, which
// leaves cores idle. By all algorithms with 4 ranks on 2 cores, 1 to 16 MiB: 0.55 over tcp, 0.2 over shm.
constexpr double share_of_excess = 0.4;

// Of a slice on a slow link, but no less than what is worth a call of the kernel.
constexpr double slice_seconds = 1e-3;
constexpr std::size_t least_slice = 16 << 10;

// By which ranks are late where the path is short: they share their cores, and wait for what was lost a millisecond
// ago.
constexpr double late_seconds = 10e-3;
// On longer paths a round trip, and more so until a lost packet is missed and sent again, is what keeps ranks waiting.
// How much lines carry meanwhile is not to be measured in a moment, and to be too far ahead costs little there: of 20
// ms more than a second's worth. A latency of little more than a millisecond may be that of busy cores.
constexpr double short_path = 1e-3;  // seconds, one way
constexpr double ahead_of_a_path = 64;

// What is on its way from one rank to another, chunk by chunk in the order in which it was sent. One store for all
// links, of which a large world has millions, most of them with one chunk at a time.
class UnderWay {
 public:
  class Link {
    friend UnderWay;
    std::uint32_t first = none;
    std::uint32_t last = none;
  };
  Link& link(std::size_t from, std::size_t to) { return links_[std::uint64_t{from} << 32 | to]; }

  void push(Link& link, std::uint32_t depth) {
    std::uint32_t place = free_;
    if (place == none) {
      place = static_cast<std::uint32_t>(chunks_.size());
      chunks_.emplace_back();
    } else {
      free_ = chunks_[place].next;
    }
    chunks_[place] = {.depth = depth, .next = none};
    (link.first == none ? link.first : chunks_[link.last].next) = place;
    link.last = place;
  }

  std::uint32_t pop(Link& link) {
    const std::uint32_t place = link.first;
    link.first = std::exchange(chunks_[place].next, free_);
    free_ = place;
    return chunks_[place].depth;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  struct Chunk {
    std::uint32_t depth = 0;
    std::uint32_t next = none;  // of its link, or of those that are free
  };

  std::unordered_map<std::uint64_t, Link> links_;
  std::vector<Chunk> chunks_;
  std::uint32_t free_ = none;
};

// Follows the chunks of all ranks through the rounds: the longest chain of messages, in which a message counts as one
// or as its chunks.
class Chain {
 public:
  Chain(const Schedule& schedule, bool in_chunks)
      : chunks_(schedule.chunks), in_chunks_(in_chunks), places_(static_cast<std::size_t>(schedule.world)) {
    std::uint32_t rounds = 0;
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      auto& steps = programs_.emplace_back(schedule.program(rank));
      std::ranges::stable_sort(steps, {}, &Step::round);  // two trees may stand one behind the other
      if (!steps.empty()) rounds = std::max(rounds, steps.back().round + 1);
    }
    std::vector<std::size_t> next(programs_.size());
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::vector<std::size_t> first = next;
      for (std::size_t rank = 0; rank < programs_.size(); ++rank)
        for (; next[rank] < programs_[rank].size() && programs_[rank][next[rank]].round <= round; ++next[rank])
          give(rank, programs_[rank][next[rank]]);
      for (std::size_t rank = 0; rank < programs_.size(); ++rank)
        for (std::size_t i = first[rank]; i < next[rank]; ++i) take(rank, programs_[rank][i]);
    }
  }
  std::uint32_t longest() const { return longest_; }

 private:
  using Depths = std::vector<std::uint32_t>;

  // Of what stands in a place of a rank: how long the chain is that brought it there.
  std::uint32_t& at(std::size_t rank, const Place& place, std::uint32_t chunk) {
    Depths& all = places_[rank];
    const std::size_t buffer = std::size_t{place.slot} * 3 + static_cast<std::size_t>(place.buffer);
    const std::size_t index = buffer * chunks_ + place.chunk + chunk;
    if (index >= all.size()) all.resize(index + 1);
    return all[index];
  }

  void give(std::size_t rank, const Step& step) {
    if (step.action == Action::copy)
      for (std::uint32_t i = 0; i < step.chunks; ++i) at(rank, step.to, i) = at(rank, step.from, i);
    if (step.action != Action::send) return;
    auto& link = under_way_.link(rank, static_cast<std::size_t>(step.peer));
    for (std::uint32_t i = 0; i < step.chunks; ++i)
      under_way_.push(link, at(rank, step.from, i) + (in_chunks_ ? step.chunks : 1));
  }

  void take(std::size_t rank, const Step& step) {
    if (step.action == Action::copy)  // once more: of what came in this round
      for (std::uint32_t i = 0; i < step.chunks; ++i) at(rank, step.to, i) = at(rank, step.from, i);
    if (step.action == Action::reduce)
      for (std::uint32_t i = 0; i < step.chunks; ++i)
        at(rank, step.to, i) = std::max(at(rank, step.to, i), at(rank, step.from, i));
    if (step.action != Action::recv && step.action != Action::recv_reduce) return;
    auto& link = under_way_.link(static_cast<std::size_t>(step.peer), rank);
    for (std::uint32_t i = 0; i < step.chunks; ++i) {
      const std::uint32_t own = step.action == Action::recv_reduce ? at(rank, step.from, i) : 0;
      longest_ = std::max(longest_, at(rank, step.to, i) = std::max(own, under_way_.pop(link)));
    }
  }

  const std::size_t chunks_;
  const bool in_chunks_;
  std::vector<std::vector<Step>> programs_;
  std::vector<Depths> places_;
  UnderWay under_way_;
  std::uint32_t longest_ = 0;
};

// By how much bytes are dearer.
double meeting(std::uint32_t partners, double partner) { return partners > 1 ? 1 + partner * (partners - 1) : 1; }

bool uses_scratch(const Step& step) { return step.from.buffer == Buffer::scratch || step.to.buffer == Buffer::scratch; }

}  // namespace

ScheduleCost::ScheduleCost(const Schedule& schedule, Rank ranks_per_node)
    : chunks_(std::max(schedule.chunks, 1u)), first_(schedule.root) {
  const Rank looked_at = schedule.world <= most_ranks ? schedule.world : ranks_of_large_worlds;
  const auto count = [](std::vector<Transfers>& all, std::uint32_t chunks) {
    const auto found = std::ranges::find(all, chunks, &Transfers::chunks);
    if (found != all.end())
      ++found->times;
    else
      all.push_back({.chunks = chunks, .times = 1});
  };
  for (Rank i = 0; i < looked_at; ++i) {
    const auto rank =
        static_cast<Rank>((schedule.root + std::int64_t{i} * schedule.world / looked_at) % schedule.world);
    OfRank& own = ranks_.emplace_back();
    std::set<Rank> senders;
    for (const Step& step : schedule.program(rank)) {
      if (step.peer >= 0) depth_ = std::max(depth_, step.round + 1);
      if (step.action == Action::send) count(own.sends, step.chunks);
      if (step.action == Action::recv || step.action == Action::recv_reduce) {
        count(own.receives, step.chunks);
        senders.insert(step.peer);
      }
      const bool adds = step.action == Action::recv_reduce || step.action == Action::reduce;
      if (adds || (step.action == Action::copy && uses_scratch(step))) own.reduced_chunks += step.chunks;
    }
    own.partners = static_cast<std::uint32_t>(senders.size());
    partners_ = std::max(partners_, own.partners);
  }
  knows_nodes_ = ranks_per_node > 0;
  if (knows_nodes_) look_at_nodes(schedule, ranks_per_node);
  if (schedule.world > most_ranks) return;
  depth_ = Chain(schedule, false).longest();
  path_chunks_ = Chain(schedule, true).longest();
}

std::uint32_t ScheduleCost::depth(const Schedule& schedule) { return Chain(schedule, false).longest(); }

void ScheduleCost::look_at_nodes(const Schedule& schedule, Rank ranks_per_node) {
  Rank first = 0, end = schedule.world;
  if (schedule.world > most_ranks) {
    first = schedule.root - schedule.root % ranks_per_node;
    end = std::min<Rank>(first + ranks_per_node, end);
  }
  std::uint64_t sent = 0, received = 0;
  for (Rank rank = first; rank < end; ++rank) {
    if (rank % ranks_per_node == 0) sent = received = 0;
    std::set<Rank> distant;
    for (const Step& step : schedule.program(rank)) {
      if (step.peer < 0 || step.peer / ranks_per_node == rank / ranks_per_node) continue;
      if (step.action == Action::send) {
        sent += step.chunks;
      } else {
        received += step.chunks;
        distant.insert(step.peer);
      }
    }
    distant_partners_ = std::max(distant_partners_, static_cast<std::uint32_t>(distant.size()));
    chunks_between_ = std::max({chunks_between_, sent, received});
  }
}

RankCost ScheduleCost::transfers(const std::vector<Transfers>& all, double chunk, double slice_bytes) {
  RankCost sum;
  for (const auto& [chunks, times] : all) {
    // As compile cuts: a chunk beyond a slice by itself, smaller ones together.
    const double messages = chunk > slice_bytes ? chunks * std::ceil(chunk / slice_bytes)
                                                : std::max(1.0, std::ceil(chunks * chunk / slice_bytes));
    sum.messages += times * messages;
    sum.bytes += times * chunks * chunk;
  }
  return sum;
}

double ScheduleCost::path_bytes(std::size_t bytes, std::size_t slice_bytes) const {
  const double all = static_cast<double>(bytes) / chunks_ * path_chunks_;
  return std::min(all, static_cast<double>(depth_) * static_cast<double>(slice_bytes));
}

// `weigh`: what a rank's bytes count, in either direction.
template <class Weigh>
RankCost ScheduleCost::most(std::size_t bytes, std::size_t slice_bytes, const Weigh& weigh) const {
  const double chunk = static_cast<double>(bytes) / chunks_;
  RankCost most;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const OfRank& rank = ranks_[i];
    const RankCost sent = transfers(rank.sends, chunk, static_cast<double>(slice_bytes));
    const RankCost received = transfers(rank.receives, chunk, static_cast<double>(slice_bytes));
    const RankCost own = weigh(i, RankCost{.messages = std::max(sent.messages, received.messages),
                                           .bytes = std::max(sent.bytes, received.bytes),
                                           .reduced = static_cast<double>(rank.reduced_chunks) * chunk});
    most = {.messages = std::max(most.messages, own.messages),
            .bytes = std::max(most.bytes, own.bytes),
            .reduced = std::max(most.reduced, own.reduced)};
  }
  return most;
}

RankCost ScheduleCost::busiest(std::size_t bytes, std::size_t slice_bytes) const {
  return most(bytes, slice_bytes, [](std::size_t, const RankCost& own) { return own; });
}

RankCost ScheduleCost::busiest_by_line(std::size_t bytes, std::size_t slice_bytes, std::span<const double> lines,
                                       double partner) const {
  return most(bytes, slice_bytes, [&](std::size_t i, const RankCost& own) {
    const double line = lines[(static_cast<std::size_t>(first_) + i) % lines.size()];
    return RankCost{.messages = own.messages,
                    .bytes = own.bytes * line * meeting(ranks_[i].partners, partner),
                    .reduced = own.reduced * line};
  });
}

RankCost ScheduleCost::shared(std::size_t bytes, std::size_t slice_bytes) const {
  const double chunk = static_cast<double>(bytes) / chunks_;
  RankCost sum, most;  // of both directions, which one core works on in turn
  for (const OfRank& rank : ranks_) {
    const RankCost sent = transfers(rank.sends, chunk, static_cast<double>(slice_bytes));
    const RankCost received = transfers(rank.receives, chunk, static_cast<double>(slice_bytes));
    const RankCost own = {.messages = std::max(sent.messages, received.messages),
                          .bytes = (sent.bytes + received.bytes) / 2,
                          .reduced = static_cast<double>(rank.reduced_chunks) * chunk};
    sum.messages += sent.messages + received.messages;
    sum.bytes += own.bytes;
    sum.reduced += own.reduced;
    most = {.messages = std::max(most.messages, own.messages),
            .bytes = std::max(most.bytes, own.bytes),
            .reduced = std::max(most.reduced, own.reduced)};
  }
  const auto ranks = static_cast<double>(ranks_.size());
  const double mean = sum.bytes / ranks;
  return {.messages = std::max(sum.messages / ranks, most.messages) / 2,
          .bytes = std::max(mean + share_of_excess * (most.bytes - mean), most.bytes / 2),
          .reduced = std::max(sum.reduced / ranks, most.reduced / 2)};
}

std::size_t slice_for(double seconds_per_byte, std::size_t most) {
  if (seconds_per_byte * static_cast<double>(most) <= slice_seconds) return most;
  const auto carried = std::bit_floor(static_cast<std::size_t>(slice_seconds / seconds_per_byte));
  return std::min(most, std::max(carried, least_slice));
}

std::size_t ahead_for(double latency, double seconds_per_byte, std::size_t most) {
  const double longer = std::max(latency - short_path, 0.0), seconds = late_seconds + ahead_of_a_path * longer;
  if (longer == 0 && seconds_per_byte * static_cast<double>(most) <= seconds) return most;
  return static_cast<std::size_t>(std::min(seconds / seconds_per_byte, 0x1p62));
}

std::size_t lead_for(double latency, double seconds_per_byte) {
  if (seconds_per_byte <= 0) return 0;
  return static_cast<std::size_t>(std::min((late_seconds + 2 * latency) / seconds_per_byte, 0x1p62));
}

RankCost decisive(const LinkModel& model, const ScheduleCost& cost, std::size_t bytes, std::size_t slice_bytes) {
  const bool by_line = !model.lines.empty() && cost.knows_each_of(model.lines.size());
  RankCost work = by_line         ? cost.busiest_by_line(bytes, slice_bytes, model.lines, model.partner)
                  : model.crowded ? cost.shared(bytes, slice_bytes)
                                  : cost.busiest(bytes, slice_bytes);
  // Streams meet on the line between hosts; where that has a price of its own, β is that of memory. Ranks of whom it is
  // not known which of them stand together count as if none did.
  if (model.between == 0)
    work.bytes *= by_line ? 1 : meeting(cost.partners(), model.partner);
  else if (cost.knows_nodes())
    work.between = cost.between_nodes(bytes) * meeting(cost.distant_partners(), model.partner);
  else
    work.between = work.bytes * meeting(cost.partners(), model.partner);
  const double path = cost.path_bytes(bytes, slice_bytes);
  work.bytes = std::max(work.bytes, model.crowded ? path / 2 : path);
  return work;
}

double predict(const LinkModel& model, const ScheduleCost& cost, std::size_t bytes, std::size_t slice_bytes) {
  const RankCost work = decisive(model, cost, bytes, slice_bytes);
  return model.latency * cost.depth() + model.message * work.messages + model.byte * work.bytes +
         model.reduce * work.reduced + model.between * work.between;
}

}  // namespace ranvier
