// The largest packet that reaches the other side: G. Fairhurst, T. Jones, M. Tüxen, I. Rüngeler, T. Völker,
// "Packetization Layer Path MTU Discovery for Datagram Transports", RFC 8899, 2020. Routers' messages that a packet was
// too big get lost on their way or are forged, so the packets themselves are the test: padded ones of the sizes that
// networks have, the largest first; the first that is acknowledged is the size from then on. Until then, and again
// when large packets vanish, it is one that gets through nearly everywhere.
//
// Pure. Sizes are those of what UDP carries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace ranvier::transport {

class PacketSize {
 public:
  // `most`: what the first link takes, which is known here. `certain`: there is no other link.
  PacketSize(std::size_t most, bool certain) : most_(most), bytes_(certain ? most : std::min(most, base)) {
    if (bytes_ == most_) tried_ = candidates.size() + 1;
  }

  static constexpr std::size_t base = 1200;  // RFC 8899, 5.1.2: within IPv6's least MTU
  static constexpr std::size_t least = 700;  // of a link's: an acknowledgement with all that it may hold

  std::size_t bytes() const { return bytes_; }
  // The size to try now; 0 if none, or one is under way.
  std::size_t to_try() const { return under_way_ || tried_ > candidates.size() ? 0 : candidate(); }
  void trying() { under_way_ = true; }

  void acknowledged(std::size_t size) {
    under_way_ = false;
    if (size <= bytes_) return;
    bytes_ = size;
    tried_ = candidates.size() + 1;
  }
  void lost() {
    under_way_ = false;
    if (++attempts_ >= most_attempts) next();
  }
  // The kernel itself says that this is too large. Whether a smaller size is left.
  bool refused(std::size_t size) {
    under_way_ = false;
    const bool may_shrink = size > std::min(bytes_, base);
    if (size <= bytes_) bytes_ = std::min(bytes_, base);
    next();
    return may_shrink;
  }
  void large_ones_vanish() {
    if (bytes_ <= base) return;
    *this = PacketSize(most_, false);
  }

 private:
  // Jumbo frames, the loopback of some kernels, Ethernet, Ethernet under IPv6, under PPPoE, in tunnels.
  static constexpr std::array<std::size_t, 6> candidates{8972, 8952, 1472, 1452, 1444, 1392};
  static constexpr int most_attempts = 3;

  std::size_t candidate() const { return tried_ == 0 ? most_ : candidates[tried_ - 1]; }
  void next() {
    attempts_ = 0;
    do ++tried_;
    while (tried_ <= candidates.size() && (candidate() >= most_ || candidate() <= bytes_));
  }

  std::size_t most_;
  std::size_t bytes_;
  std::size_t tried_ = 0;  // of most_ and the candidates
  int attempts_ = 0;
  bool under_way_ = false;
};

}  // namespace ranvier::transport
