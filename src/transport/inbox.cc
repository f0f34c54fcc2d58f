#include "transport/inbox.h"

#include <bit>

namespace ranvier::transport {
namespace {

// 128 KiB slices were fastest where they fit the caches (64 KiB to 1 MiB were tried); all rings of an inbox together
// stay within 64 MiB, up to 8 ranks with slices of that size, and 64 ranks with 16 KiB.
constexpr std::size_t largest_slice = 128 << 10;
constexpr std::size_t smallest_slice = 4 << 10;
constexpr std::size_t inbox_budget = 64 << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

constexpr std::size_t section_bytes_with(std::size_t slice, std::size_t message_slice) {
  return InboxLayout::section_head + collective_lanes * RingMemory::payload_bytes(slice) +
         RingMemory::payload_bytes(message_slice);
}

}  // namespace

InboxLayout::InboxLayout(Rank world) {
  const auto senders = static_cast<std::size_t>(world);
  slice_ = largest_slice;
  do {
    message_slice_ = slice_ > 4 * smallest_slice ? slice_ / 4 : smallest_slice;
    section_bytes_ = section_bytes_with(slice_, message_slice_);
  } while (senders * section_bytes_ > inbox_budget && slice_ > smallest_slice && (slice_ /= 2) > 0);
  section_bytes_ = round_up(section_bytes_, page);
  bytes_ = page + senders * section_bytes_;
}

RingMemory InboxLayout::ring(std::byte* section, Lane lane) const {
  auto& head = *reinterpret_cast<InboxSection*>(section);
  return {.control = &head.control[lane],
          .lines = head.lines[lane].data(),
          .payload = section + section_head + lane * RingMemory::payload_bytes(slice_),
          .slice_bytes = slice_bytes(lane)};
}

InboxHeader& open_inbox(std::byte* memory, const WorldInfo& info) {
  auto& header = *reinterpret_cast<InboxHeader*>(memory);
  header.magic = inbox_magic;
  header.version = inbox_version;
  header.rank = info.rank;
  header.world = info.world;
  header.epoch = info.epoch;
  header.takes_barriers = register_for_barriers() ? 1 : 0;
  header.cpus = CpuSet::own();
  return header;
}

}  // namespace ranvier::transport
