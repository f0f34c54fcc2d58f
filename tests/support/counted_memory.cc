#include "support/counted_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> held = 0, most_held = 0;

void* counted(void* memory) {
  if (memory == nullptr) return nullptr;
  const std::size_t bytes = malloc_usable_size(memory), now = held.fetch_add(bytes) + bytes;
  for (std::size_t most = most_held.load(); now > most && !most_held.compare_exchange_weak(most, now);) {
  }
  return memory;
}

void give_back(void* memory) {
  if (memory != nullptr) held.fetch_sub(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// None is inlined: malloc() met by operator delete, or the other way round, looks like a mistake to the compiler.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* const memory = counted(std::malloc(std::max<std::size_t>(bytes, 1)))) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(std::malloc(std::max<std::size_t>(bytes, 1)));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { give_back(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }

namespace ranvier::support {

std::size_t held_bytes() { return held.load(); }
std::size_t most_held_bytes() { return most_held.load(); }
void restart_most_held() { most_held.store(held.load()); }

}  // namespace ranvier::support
