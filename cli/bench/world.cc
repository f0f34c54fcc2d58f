#include "bench/world.h"

#include <algorithm>

namespace ranvier::bench {

void Outcome::add(const Reply& reply, std::uint64_t iterations) {
  if (!reply.refusal.empty()) refusal = reply.refusal;
  seconds = std::max(seconds, reply.seconds / static_cast<double>(iterations));
  cpu_seconds += reply.cpu_seconds / static_cast<double>(iterations);
  wrong += reply.wrong;
  losses += reply.losses;
  packets += reply.packets;
  error = std::max(error, reply.error);
  fell_back = fell_back || reply.fell_back;
  if (reply.network == 0 || std::ranges::find(networks, reply.network) != networks.end()) return;
  networks.push_back(reply.network);
  packets += reply.kernel;
}

}  // namespace ranvier::bench
