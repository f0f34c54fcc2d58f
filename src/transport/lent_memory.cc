#include "transport/lent_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "ranvier/error.h"
#include "transport/memory_file.h"

namespace ranvier::transport {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / page * page;  // which the kernel refuses
  return bytes < most ? (std::max(bytes, std::size_t{1}) + page - 1) / page * page : most;
}

}  // namespace

OwnMemory::OwnMemory(RegionTable& table, std::shared_ptr<const void> inbox)
    : table_(table), inbox_(std::move(inbox)), process_(getpid()) {
  table_.process = process_;
}

std::shared_ptr<std::byte[]> OwnMemory::allocate(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  MemoryFile file = MemoryFile::make("ranvier-memory", size);
  Mapping memory = Mapping::of_file(file.number(), 0, size);
  // Unlike rings this is the program's own memory, which its children may expect to find.
  madvise(memory.data(), size, MADV_DOFORK);
  prefault(memory.data(), size);

  const std::lock_guard lock(mutex_);
  const auto vacant = std::ranges::find_if(regions_, [](const Region& each) { return !each.file.valid(); });
  if (vacant == regions_.end())
    throw Error(
        ErrorKind::config,
        fmt::format("this rank has {} pieces of shared memory already; allocate fewer and larger ones", most_regions));
  const auto index = static_cast<std::uint32_t>(vacant - regions_.begin());
  RegionEntry& entry = table_.entries[index];
  entry.file = file.number();
  entry.bytes = size;
  entry.life.fetch_add(1);
  std::byte* data = memory.data();
  *vacant = {std::move(memory), std::move(file)};
  living_.fetch_add(1, std::memory_order_relaxed);
  return {data, [self = shared_from_this(), index](std::byte*) { self->free(index); }};
}

// Peers keep their mappings until the row is used again: without its pages the file costs nothing until then. A process
// that was forked off has the same file, and leaves its pages alone.
void OwnMemory::free(std::uint32_t region) {
  const std::lock_guard lock(mutex_);
  Region& freed = regions_[region];
  if (getpid() == process_) freed.file.drop_pages(freed.memory.bytes());
  freed = {};
  living_.fetch_sub(1, std::memory_order_relaxed);
}

std::optional<LentBytes> OwnMemory::find(ConstBytes body) const {
  if (living_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < most_regions; ++i) {
    const Mapping& memory = regions_[i].memory;
    const std::byte* const begin = memory.data();
    if (begin == nullptr || body.data() < begin || body.data() + body.size() > begin + memory.bytes()) continue;
    return LentBytes{.region = i,
                     .life = table_.entries[i].life.load(std::memory_order_relaxed),
                     .offset = static_cast<std::uint64_t>(body.data() - begin),
                     .bytes = body.size()};
  }
  return std::nullopt;
}

// As the writer of a seqlock (Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012),
// whose readers look at the count behind what they read.
void OwnMemory::withdraw() {
  table_.withdrawn.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void LenderMemory::require_lent() const {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (table_.withdrawn.load(std::memory_order_relaxed) != 0)
    throw Error(ErrorKind::peer_lost,
                fmt::format("rank {} gave up before the memory that it lends had been read", peer_), peer_);
}

ConstBytes LenderMemory::view(const LentBytes& lent) {
  if (lent.region >= most_regions)
    throw Error(ErrorKind::internal,
                fmt::format("rank {} lends bytes of its region {} of {}; its memory was overwritten: restart the job, "
                            "and report a bug if it happens again",
                            peer_, lent.region, most_regions),
                peer_);
  Region& region = regions_[lent.region];
  if (region.life != lent.life || region.memory.data() == nullptr) map(lent);
  if (lent.bytes > region.memory.bytes() || lent.offset > region.memory.bytes() - lent.bytes || lent.bytes == 0)
    throw Error(ErrorKind::internal,
                fmt::format("rank {} lends {} bytes at {} of a region of {}; its memory was overwritten: restart the "
                            "job, and report a bug if it happens again",
                            peer_, lent.bytes, lent.offset, region.memory.bytes()),
                peer_);
  return {region.memory.data() + lent.offset, lent.bytes};
}

void LenderMemory::map(const LentBytes& lent) {
  const RegionEntry& entry = table_.entries[lent.region];
  const std::size_t bytes = entry.bytes;
  const MemoryFile file = MemoryFile::open(table_.process, entry.file);
  const int problem = errno;
  if (file.valid() && !file.is_own())
    throw Error(ErrorKind::unreachable,
                fmt::format("the memory that rank {} (process {}) lends belongs to another user; run all ranks as one "
                            "user, or use the tcp transport",
                            peer_, table_.process),
                peer_);
  if (!file.valid() || !file.is_sealed_at(bytes) || entry.life.load() != lent.life)
    throw Error(
        ErrorKind::unreachable,
        fmt::format("the memory that rank {} (process {}) lends cannot be opened: {}; see whether it still "
                    "runs and keeps what it gave to collectives until they are done",
                    peer_, table_.process, file.valid() ? "it was freed while it was lent" : std::strerror(problem)),
        peer_);
  regions_[lent.region] = {Mapping::of_file_to_read(file.number(), bytes), lent.life};
}

}  // namespace ranvier::transport
