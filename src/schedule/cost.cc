#include "ranvier/cost.h"

#include <algorithm>
#include <cmath>

namespace ranvier {
namespace {

constexpr Rank most_ranks = 64;
constexpr Rank ranks_of_large_worlds = 9;

bool uses_scratch(const Step& step) { return step.from.buffer == Buffer::scratch || step.to.buffer == Buffer::scratch; }

}  // namespace

ScheduleCost::ScheduleCost(const Schedule& schedule) : chunks_(std::max(schedule.chunks, 1u)) {
  const Rank looked_at = schedule.world <= most_ranks ? schedule.world : ranks_of_large_worlds;
  const auto count = [](std::vector<Transfers>& all, std::uint32_t chunks) {
    const auto found = std::ranges::find(all, chunks, &Transfers::chunks);
    if (found != all.end())
      ++found->times;
    else
      all.push_back({.chunks = chunks, .times = 1});
  };
  for (Rank i = 0; i < looked_at; ++i) {
    const auto rank = static_cast<Rank>(std::int64_t{i} * schedule.world / looked_at);
    OfRank& own = ranks_.emplace_back();
    for (const Step& step : schedule.program(rank)) {
      if (step.peer >= 0) rounds_ = std::max(rounds_, step.round + 1);
      if (step.action == Action::send) count(own.sends, step.chunks);
      if (step.action == Action::recv || step.action == Action::recv_reduce) count(own.receives, step.chunks);
      const bool adds = step.action == Action::recv_reduce || step.action == Action::reduce;
      if (adds || (step.action == Action::copy && uses_scratch(step))) own.reduced_chunks += step.chunks;
    }
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

RankCost ScheduleCost::busiest(std::size_t bytes, std::size_t slice_bytes) const {
  const double chunk = static_cast<double>(bytes) / chunks_;
  RankCost most;
  for (const OfRank& rank : ranks_) {
    const RankCost sent = transfers(rank.sends, chunk, static_cast<double>(slice_bytes));
    const RankCost received = transfers(rank.receives, chunk, static_cast<double>(slice_bytes));
    most = {.messages = std::max({most.messages, sent.messages, received.messages}),
            .bytes = std::max({most.bytes, sent.bytes, received.bytes}),
            .reduced = std::max(most.reduced, static_cast<double>(rank.reduced_chunks) * chunk)};
  }
  return most;
}

RankCost ScheduleCost::mean(std::size_t bytes, std::size_t slice_bytes) const {
  const double chunk = static_cast<double>(bytes) / chunks_;
  RankCost sum;  // of both directions
  for (const OfRank& rank : ranks_) {
    for (const auto* const way : {&rank.sends, &rank.receives}) {
      const RankCost own = transfers(*way, chunk, static_cast<double>(slice_bytes));
      sum.messages += own.messages;
      sum.bytes += own.bytes;
    }
    sum.reduced += static_cast<double>(rank.reduced_chunks) * chunk;
  }
  const auto ranks = static_cast<double>(ranks_.size());
  return {.messages = sum.messages / 2 / ranks, .bytes = sum.bytes / 2 / ranks, .reduced = sum.reduced / ranks};
}

double predict(const LinkModel& model, const ScheduleCost& cost, std::size_t bytes, std::size_t slice_bytes) {
  const RankCost work = model.crowded ? cost.mean(bytes, slice_bytes) : cost.busiest(bytes, slice_bytes);
  return model.round * cost.rounds() + model.message * work.messages + model.byte * work.bytes +
         model.reduce * work.reduced;
}

}  // namespace ranvier
