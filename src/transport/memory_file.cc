#include "transport/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

MemoryFile MemoryFile::make(const char* name, std::size_t bytes) {
  MemoryFile file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || fchmod(file.descriptor_, S_IRUSR | S_IWUSR) != 0 ||
      ftruncate(file.descriptor_, static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.descriptor_, F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0)
    throw Error(ErrorKind::config,
                fmt::format("cannot make a shared-memory file of {} bytes: {}; use the tcp transport, "
                            "or allow the process more memory and files",
                            bytes, std::strerror(errno)));
  return file;
}

MemoryFile MemoryFile::open(int process, int number) {
  // Never block on, or take as terminal, what the number may mean by now.
  return MemoryFile(
      ::open(fmt::format("/proc/{}/fd/{}", process, number).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

void MemoryFile::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void MemoryFile::drop_pages(std::size_t bytes) {
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
}

bool MemoryFile::is_own() const {
  struct stat facts {};
  return fstat(descriptor_, &facts) == 0 && facts.st_uid == geteuid();
}

bool MemoryFile::is_sealed_at(std::size_t bytes) const {
  struct stat facts {};
  const int seals = fcntl(descriptor_, F_GET_SEALS);
  return seals >= 0 && (seals & size_seals) == size_seals && fstat(descriptor_, &facts) == 0 &&
         facts.st_size == static_cast<off_t>(bytes);
}

}  // namespace ranvier::transport
