#include "integrations/torch/forks.h"

#include <pthread.h>

#include <atomic>

namespace ranvier::pytorch {
namespace {

std::atomic<unsigned> count = 0;

}  // namespace

unsigned forks() {
  // Not getpid(), which is a system call each time.
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  return count.load(std::memory_order_relaxed);
}

}  // namespace ranvier::pytorch
