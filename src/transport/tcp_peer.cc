#include "transport/tcp_peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ranvier::transport {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds a_moment{300};
// In as many attempts at least: a rank that had no core for that moment has seen one refusal, and not its end.
constexpr std::size_t least_attempts = 4;
constexpr milliseconds long_enough{10'000};

}  // namespace

void TcpPeer::listens_at(std::vector<SocketAddress> candidates) {
  candidates_ = std::move(candidates);
  problems_.assign(candidates_.size(), "no answer");
}

void TcpPeer::failed(std::size_t candidate, std::string problem) {
  problems_[candidate] = std::move(problem);
  refusals_ = 0;
  refused_since_.reset();
}

bool TcpPeer::refused(std::size_t candidate, bool knocks, Time now) {
  problems_[candidate] = std::strerror(ECONNREFUSED);
  if (++refusals_ < candidates_.size()) return false;
  if (!refused_since_) refused_since_ = now;
  if (refusals_ < least_attempts * candidates_.size()) return false;
  const bool same_host = candidates_.front().is_loopback();  // where there is such an address it comes first
  return now - *refused_since_ >= (knocks && !same_host ? long_enough : a_moment);
}

std::string TcpPeer::tried() const {
  std::vector<std::string> each;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    each.push_back(fmt::format("{}: {}", candidates_[i].text(), problems_[i]));
  return fmt::format("{}", fmt::join(each, ", "));
}

}  // namespace ranvier::transport
