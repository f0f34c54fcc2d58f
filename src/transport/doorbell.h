// How a rank sleeps until another rank, possibly of another process, has something for it.
//
// A sender must learn whether its peer sleeps, after it has published its data and without a fence: a full fence costs
// as much as the rest of a small send. So the sleeper pays for both: once it has said that it sleeps, it makes every
// other CPU pass a barrier (membarrier(2)) and looks at its rings a last time. A sender has then either seen
// `sleeping`, or its data are seen. See "asymmetric Dekker synchronization", P1202R5.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ranvier::transport {

// Lies in memory that processes share; zero-filled memory is one.
struct Doorbell {
  alignas(64) std::atomic<std::uint32_t> sleeping;
};
static_assert(sizeof(Doorbell) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

// Sleep until `word` is no longer `value`, somebody wakes it, `limit` passes, or a signal arrives.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::nanoseconds limit);
void futex_wake_all(std::atomic<std::uint32_t>& word);

// Lets other processes' sleepers put barriers into this one. False where the kernel lacks or forbids it.
bool register_for_barriers();
// Every CPU that runs a registered process passes a full barrier before this returns.
void barrier_everywhere();

void wake(Doorbell& bell);

// After data or credit for the owner of `bell` was published by a release store.
inline void ring(Doorbell& bell) {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler must not read `sleeping` before that store
  if (bell.sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]]
    wake(bell);
}

}  // namespace ranvier::transport
