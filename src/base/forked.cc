#include "base/forked.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ranvier {
namespace {

// Bits, without a lock, which another thread might have held in the moment of the fork.
constexpr std::size_t bits = 64;
std::array<std::atomic<std::uint64_t>, 65'536 / bits> marked;

bool has_bit(int descriptor) { return descriptor >= 0 && static_cast<std::size_t>(descriptor) < marked.size() * bits; }
std::atomic<std::uint64_t>& word_of(int descriptor) { return marked[static_cast<std::size_t>(descriptor) / bits]; }
std::uint64_t bit_of(int descriptor) { return std::uint64_t{1} << static_cast<std::size_t>(descriptor) % bits; }

void begin_as_child() {
  ++times_forked;
  for (std::size_t i = 0; i < marked.size(); ++i)
    for (std::uint64_t left = marked[i].exchange(0); left != 0; left &= left - 1)
      close(static_cast<int>(i * bits) + std::countr_zero(left));
}

}  // namespace

unsigned forks_from_now() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, begin_as_child);
  return forks();
}

void close_in_forked(int descriptor) {
  forks_from_now();
  if (has_bit(descriptor)) word_of(descriptor).fetch_or(bit_of(descriptor));
}

void keep_in_forked(int descriptor) {
  if (has_bit(descriptor)) word_of(descriptor).fetch_and(~bit_of(descriptor));
}

}  // namespace ranvier
