#include "transport/mirrored_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "ranvier/error.h"
#include "transport/memory_file.h"

namespace ranvier::transport {

MirroredMemory::MirroredMemory(std::size_t bytes) {
  const MemoryFile file = MemoryFile::make("ranvier-udp", bytes);
  void* const both = mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* const data = static_cast<std::byte*>(both);
  const auto map_at = [&](std::byte* place) {
    return mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.number(), 0) != MAP_FAILED;
  };
  if (both == MAP_FAILED || !map_at(data) || !map_at(data + bytes)) {
    const int problem = errno;
    if (both != MAP_FAILED) munmap(both, 2 * bytes);
    throw Error(ErrorKind::config,
                fmt::format("cannot map {} bytes for a lane of udp ({}); allow the process more memory, or use tcp",
                            2 * bytes, std::strerror(problem)));
  }
  madvise(data, 2 * bytes, MADV_DONTFORK);  // a data loader's workers must not keep a dead job's memory alive
  data_ = data;
  bytes_ = bytes;
}

MirroredMemory::~MirroredMemory() {
  if (data_ != nullptr) munmap(data_, 2 * bytes_);
}

}  // namespace ranvier::transport
