// Memory that one rank has and the others read where it lies, so that sending it copies nothing.
//
// A region is a memory file of its owner, listed in a table in the header of the owner's inbox. A peer maps a region,
// for reading only, the first time that bytes in it are lent to it, through /proc/PID/fd as it did with the inbox.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "ranvier/types.h"
#include "transport/mapping.h"
#include "transport/memory_file.h"

namespace ranvier::transport {

inline constexpr std::uint32_t most_regions = 64;

// One row of the table. Written by the owner before anything of the region is lent.
struct RegionEntry {
  std::atomic<std::uint32_t> life;  // how often this row was used; another life, another file
  std::int32_t file;                // its number in the owner's process
  std::uint64_t bytes;
};

struct RegionTable {
  std::int32_t process;
  std::atomic<std::uint32_t> withdrawn;  // the owner gave up, and its program may be writing what was lent
  std::array<RegionEntry, most_regions> entries;
};

// What travels in the place of the bytes.
struct LentBytes {
  std::uint32_t region = 0;
  std::uint32_t life = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The regions of this rank. Thread-safe.
class OwnMemory : public std::enable_shared_from_this<OwnMemory> {
 public:
  // `table` lies in `inbox`, which is kept for as long as any region lives.
  OwnMemory(RegionTable& table, std::shared_ptr<const void> inbox);

  // See PeerMemory::allocate.
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes);
  // Where `body` lies; none if any of it is outside of one region. Takes no lock while there are no regions.
  std::optional<LentBytes> find(ConstBytes body) const;
  // Whoever has not yet given back what is lent is to believe nothing of it: the program may write there on return.
  void withdraw();

 private:
  struct Region {
    Mapping memory;
    MemoryFile file;
  };
  void free(std::uint32_t region);

  RegionTable& table_;
  const std::shared_ptr<const void> inbox_;
  const std::int32_t process_;
  std::atomic<std::uint32_t> living_ = 0;  // regions; whoever has an address in one knows that it is counted
  mutable std::mutex mutex_;
  std::array<Region, most_regions> regions_;
};

// The regions of one peer, as far as bytes of them were lent to this rank.
class LenderMemory {
 public:
  // `table` lies in the peer's inbox and outlives this.
  LenderMemory(Rank peer, const RegionTable& table) : peer_(peer), table_(table) {}

  // The bytes, mapped. Throws Error{unreachable} if the region cannot be opened, Error{internal} for bytes outside of
  // it: nothing that the peer wrote is used unchecked.
  ConstBytes view(const LentBytes&);
  // Throws Error{peer_lost} if what was read by now may be something else than what was lent.
  void require_lent() const;

 private:
  struct Region {
    Mapping memory;
    std::uint32_t life = 0;
  };
  void map(const LentBytes&);

  const Rank peer_;
  const RegionTable& table_;
  std::array<Region, most_regions> regions_;
};

}  // namespace ranvier::transport
