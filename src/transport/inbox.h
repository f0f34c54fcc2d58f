// The memory into which all others send to one rank: a page about the rank, then for each sender a section of rings,
// one a lane. A sender maps that page and its own section, and can do no harm to the others'.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/cpu_set.h"
#include "ranvier/transport.h"
#include "transport/doorbell.h"
#include "transport/lent_memory.h"
#include "transport/slot_ring.h"

namespace ranvier::transport {

inline constexpr std::uint64_t inbox_magic = 0x7265697672616e72;
inline constexpr std::uint32_t inbox_version = 6;  // of everything in this file and in slot_ring.h

struct InboxHeader {
  std::uint64_t magic;
  std::uint32_t version;
  Rank rank;
  Rank world;
  Epoch epoch;
  std::uint32_t takes_barriers;        // register_for_barriers() succeeded
  std::array<std::uint64_t, 2> token;  // tells this inbox from any other that ever had its process and file number
  CpuSet cpus;                         // on which the rank may run
  Doorbell bell;                       // of the owner
  alignas(64) std::atomic<std::uint32_t> attached;  // how many senders have mapped their section
  RegionTable regions;                              // what the owner lends to others
};

struct InboxSection {
  std::array<RingControl, lane_count> control;
  std::array<std::array<SlotLine, slots_per_ring>, lane_count> lines;
  alignas(64) std::atomic<std::uint32_t> attached;  // by its sender
};

// Offsets and sizes; they follow from the world size alone, so that all ranks agree on them.
class InboxLayout {
 public:
  explicit InboxLayout(Rank world);

  std::size_t slice_bytes(Lane lane) const { return lane == message_lane ? message_slice_ : slice_; }
  std::size_t section_offset(Rank sender) const { return page + static_cast<std::size_t>(sender) * section_bytes_; }
  std::size_t section_bytes() const { return section_bytes_; }
  // Of each section: what collectives use, whose lanes take turns.
  std::size_t collective_bytes() const { return section_head + collective_lanes * RingMemory::payload_bytes(slice_); }
  std::size_t bytes() const { return bytes_; }

  RingMemory ring(std::byte* section, Lane lane) const;

  // The largest that the kernel may have: sections are mapped by themselves.
#if defined(__aarch64__)
  static constexpr std::size_t page = 65'536;
#else
  static constexpr std::size_t page = 4096;
#endif
  static constexpr std::size_t section_head = (sizeof(InboxSection) + 4095) / 4096 * 4096;

 private:
  std::size_t slice_ = 0;
  std::size_t message_slice_ = 0;
  std::size_t section_bytes_ = 0;
  std::size_t bytes_ = 0;
};
static_assert(sizeof(InboxHeader) <= InboxLayout::page);

// Writes the header of a zero-filled inbox; `token` stays to be set.
InboxHeader& open_inbox(std::byte* memory, const WorldInfo& info);

}  // namespace ranvier::transport
