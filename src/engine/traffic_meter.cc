#include "engine/traffic_meter.h"

namespace ranvier::engine {
namespace {

// Nobody else writes, so a plain addition does.
void grow(std::atomic<std::uint64_t>& total, std::uint64_t more) {
  total.store(total.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

void TrafficMeter::add(const Operation& operation, const CollectiveOperation* collective) {
  grow(bytes_sent_, operation.bytes_to_send);
  grow(bytes_received_, operation.bytes_to_receive);
  grow(operations_, 1);
  if (collective != nullptr)
    for (const auto& [peer, bytes] : collective->call().program->bytes_to)
      grow(sent_to_[static_cast<std::size_t>(peer)], bytes);
  if (operation.bytes_to_each > 0)
    for (std::size_t peer = 0; peer < sent_to_.size(); ++peer)
      if (static_cast<Rank>(peer) != rank_) grow(sent_to_[peer], operation.bytes_to_each);
  if (collective == nullptr && operation.bytes_to_send > 0)
    grow(sent_to_[static_cast<std::size_t>(operation.waits_for())], operation.bytes_to_send);
}

}  // namespace ranvier::engine
