// Memory from mmap(2), unmapped when its owner goes.
#pragma once

#include <cstddef>
#include <utility>

namespace ranvier::transport {

class Mapping {
 public:
  Mapping() = default;
  // Zero-filled memory of this process.
  static Mapping of_zeroes(std::size_t bytes);
  // A part of an open file, shared with whoever else maps it; children made by fork() do not get it.
  static Mapping of_file(int file, std::size_t offset, std::size_t bytes);
  // The first bytes of it, for reading only, every page found already.
  static Mapping of_file_to_read(int file, std::size_t bytes);

  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Has the kernel find the pages now: the first touch of 64 MiB costs 22 to 150 ms, which no training step should pay.
void prefault(std::byte* begin, std::size_t bytes);

}  // namespace ranvier::transport
