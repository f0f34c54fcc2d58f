// A ring of memory without an end: its pages are mapped twice, one after the other, so that any of its bytes and as
// many behind it as it holds are one piece. Whoever writes to or reads from a ring then needs no case for the place
// where it wraps around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ranvier::transport {

class MirroredMemory {
 public:
  MirroredMemory() = default;
  // `bytes`: a power of two of at least a page. Pages come into being when they are first written. Throws
  // Error{config}.
  explicit MirroredMemory(std::size_t bytes);
  MirroredMemory(MirroredMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MirroredMemory& operator=(MirroredMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MirroredMemory();

  explicit operator bool() const { return data_ != nullptr; }
  std::size_t bytes() const { return bytes_; }
  // So many bytes from here on, up to bytes(), are one piece.
  std::byte* at(std::uint64_t offset) const { return data_ + (offset & (bytes_ - 1)); }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ranvier::transport
