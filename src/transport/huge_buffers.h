// Memory that is copied into, to be read by another process or a network card, in huge pages where the system has them.
//
// Whoever reads another process's memory, as MPI does with process_vm_readv, has the kernel look up and hold each page:
// a third of the time with pages of 4 KiB, next to nothing with one of 2 MiB. So a copy into such a page and reading
// that together cost less than reading a caller's memory where it lies.
//
// The buffer that came back last is lent first, while the caches still hold it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace ranvier::transport {

class HugeBuffers {
 public:
  // Of `each` bytes, at most a block.
  explicit HugeBuffers(std::size_t each) : each_((each + line - 1) / line * line) {}

  // Begins on a cache line. All of them live as long as this.
  std::byte* take() {
    if (idle_.empty()) add_block();
    std::byte* const last = idle_.back();
    idle_.pop_back();
    return last;
  }
  void give(std::byte* buffer) { idle_.push_back(buffer); }

 private:
  static constexpr std::size_t block = 2 << 20;  // a huge page
  static constexpr std::size_t line = 64;

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  void add_block() {
    std::unique_ptr<std::byte[], Free> fresh(static_cast<std::byte*>(std::aligned_alloc(block, block)));
    if (!fresh) throw std::bad_alloc();
    madvise(fresh.get(), block, MADV_HUGEPAGE);  // where that is refused, ordinary pages do
    const std::size_t count = block / each_;
    idle_.reserve((blocks_.size() + 1) * count);
    blocks_.push_back(std::move(fresh));
    for (std::size_t i = count; i-- > 0;) idle_.push_back(blocks_.back().get() + i * each_);
  }

  const std::size_t each_;
  std::vector<std::unique_ptr<std::byte[], Free>> blocks_;
  std::vector<std::byte*> idle_;
};

}  // namespace ranvier::transport
