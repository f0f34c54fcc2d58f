// Memory between two pages that nobody may touch: reading or writing past its ends is a crash in every build, and
// writing just beside the bytes that were asked for is seen by intact().
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>

namespace ranvier::testing {

class FencedMemory {
 public:
  explicit FencedMemory(std::size_t most_bytes) {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inside_ = (most_bytes + 2 * margin + page_ - 1) / page_ * page_;
    void* mapped = mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(mapped) + page_;
    if (mprotect(begin_, inside_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  ~FencedMemory() { munmap(begin_ - page_, inside_ + 2 * page_); }
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  // `bytes` that end `slack` (at most margin) bytes before the fence.
  std::span<std::byte> take(std::size_t bytes, std::size_t slack) {
    taken_ = {begin_ + inside_ - slack - bytes, bytes};
    std::ranges::fill(before(), canary);
    std::ranges::fill(after(), canary);
    return taken_;
  }

  bool intact() const {
    const auto untouched = [](std::byte byte) { return byte == canary; };
    return std::ranges::all_of(before(), untouched) && std::ranges::all_of(after(), untouched);
  }

  static constexpr std::size_t margin = 64;

 private:
  static constexpr std::byte canary{0xA5};

  std::span<std::byte> before() const { return {taken_.data() - margin, margin}; }
  std::span<std::byte> after() const {
    std::byte* end = taken_.data() + taken_.size();
    return {end, static_cast<std::size_t>(begin_ + inside_ - end)};
  }

  std::size_t page_;
  std::size_t inside_;
  std::byte* begin_;
  std::span<std::byte> taken_;
};

}  // namespace ranvier::testing
