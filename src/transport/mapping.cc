#include "transport/mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

std::byte* map(std::size_t bytes, int access, int flags, int file, std::size_t offset) {
  void* memory = mmap(nullptr, bytes, access, flags, file, static_cast<off_t>(offset));
  if (memory == MAP_FAILED)
    throw Error(ErrorKind::config,
                fmt::format("cannot map {} bytes of shared memory for this rank ({}); allow the process "
                            "more memory or run fewer ranks on this host",
                            bytes, std::strerror(errno)));
  return static_cast<std::byte*>(memory);
}

}  // namespace

Mapping Mapping::of_zeroes(std::size_t bytes) {
  return {map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), bytes};
}

Mapping Mapping::of_file(int file, std::size_t offset, std::size_t bytes) {
  Mapping mapping{map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset), bytes};
  madvise(mapping.data_, bytes, MADV_DONTFORK);  // a data loader's workers must not keep a dead job's memory alive
  return mapping;
}

Mapping Mapping::of_file_to_read(int file, std::size_t bytes) {
  Mapping mapping{map(bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0), bytes};
  madvise(mapping.data_, bytes, MADV_DONTFORK);
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void prefault(std::byte* begin, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::size_t ahead = reinterpret_cast<std::uintptr_t>(begin) % page;  // madvise takes whole pages
#ifdef MADV_POPULATE_WRITE
  constexpr int populate_write = MADV_POPULATE_WRITE;
#else
  constexpr int populate_write = 23;  // Linux 5.14; older kernels refuse it, and the pages come at their first use
#endif
  madvise(begin - ahead, bytes + ahead, populate_write);
}

}  // namespace ranvier::transport
