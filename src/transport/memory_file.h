// A file in memory (memfd_create(2)) that other processes open through /proc/PID/fd. It has no name: nothing is left
// behind however a process ends.
#pragma once

#include <cstddef>
#include <utility>

namespace ranvier::transport {

class MemoryFile {
 public:
  MemoryFile() = default;
  // Zero-filled, for this user only, and sealed at its size, so that no peer can shrink it and have the others die of
  // SIGBUS. `name` is what /proc/PID/maps shows. Throws Error{config}.
  static MemoryFile make(const char* name, std::size_t bytes);
  // The file that has this number in that process. Not valid if it cannot be opened; errno then says why.
  static MemoryFile open(int process, int number);

  MemoryFile(MemoryFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  MemoryFile& operator=(MemoryFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~MemoryFile() { close(); }
  void close();
  // Its first `bytes` are given back, wherever they are mapped, and read as zeros.
  void drop_pages(std::size_t bytes);

  int number() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  // Whether it belongs to this process's user: root may open everybody's.
  bool is_own() const;
  // Whether it was made by make() with so many bytes: a process's number may have come to mean another file.
  bool is_sealed_at(std::size_t bytes) const;

 private:
  explicit MemoryFile(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace ranvier::transport
