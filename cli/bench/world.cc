#include "bench/world.h"

#include <algorithm>

namespace ranvier::bench {

void Outcome::add(const Reply& reply, std::uint64_t iterations) {
  if (!reply.refusal.empty()) refusal = reply.refusal;
  seconds = std::max(seconds, reply.seconds / static_cast<double>(iterations));
  cpu_seconds += reply.cpu_seconds / static_cast<double>(iterations);
  wrong += reply.wrong;
  losses += reply.losses;
  packets.sent += reply.packets.sent;
  packets.lost += reply.packets.lost;
  packets.refused += reply.packets.refused;
  error = std::max(error, reply.error);
}

}  // namespace ranvier::bench
