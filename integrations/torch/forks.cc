#include "integrations/torch/forks.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>

namespace ranvier::pytorch {
namespace {

std::atomic<unsigned> times_forked = 0;

}  // namespace

unsigned forks() {
  // Not getpid(), which is a system call each time.
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { ++times_forked; });
  return times_forked.load(std::memory_order_relaxed);
}

void require_no_fork_since(unsigned then, Rank rank) {
  TORCH_CHECK_VALUE(forks() == then, "this process was forked off after rank ", rank,
                    " initialized this process group, which stays with the parent: start processes with the method "
                    "\"spawn\" or \"forkserver\", or initialize a group of its own here");
}

}  // namespace ranvier::pytorch
