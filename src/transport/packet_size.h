// The largest packet that reaches the other side: G. Fairhurst, T. Jones, M. Tüxen, I. Rüngeler, T. Völker,
// "Packetization Layer Path MTU Discovery for Datagram Transports", RFC 8899, 2020. Routers' messages that a packet was
// too big get lost on their way or are forged, so the packets themselves are the test: padded ones of the sizes that
// networks have, the largest first; the first that is acknowledged is the size from then on. Until then, and again
// when large packets vanish, it is one that gets through nearly everywhere; where that one vanishes too, and smaller
// ones get through, the path is too narrow.
//
// Pure. Sizes are those of what UDP carries.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace ranvier::transport {

class PacketSize {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `most`: what the first link takes, which is known here. `certain`: there is no other link.
  PacketSize(std::size_t most, bool certain)
      : certain_(certain), most_(most), bytes_(certain ? most : std::min(most, base)) {
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
    if (size <= bytes_) {
      bytes_ = std::min(bytes_, base);
      large_lost_ = small_arrived_ = 0;
    }
    next();
    return may_shrink;
  }
  void large_ones_vanish() {
    if (!certain_ && bytes_ > base) *this = PacketSize(most_, false);
  }

  // What became of packets, but for the loss of those that tried a size.
  void got_through(std::size_t size) {
    if (size > doubtless())
      large_lost_ = small_arrived_ = 0;
    else if (large_lost_ > 0)
      ++small_arrived_;
  }
  void vanished(std::size_t size, Time now) {
    if (size <= doubtless()) return;
    if (large_lost_++ == 0) large_lost_since_ = now;
    if (only_small_ones_arrive()) large_ones_vanish();
  }
  // Whether the path, for seconds now, lets small packets through and none of the least size that is needed.
  bool is_too_narrow(Time now) const {
    return bytes_ <= base && only_small_ones_arrive() && now - large_lost_since_ >= longest_narrow;
  }

 private:
  // Jumbo frames, the loopback of some kernels, Ethernet, Ethernet under IPv6, under PPPoE, in tunnels.
  static constexpr std::array<std::size_t, 6> candidates{8972, 8952, 1472, 1452, 1444, 1392};
  static constexpr int most_attempts = 3;
  // Loss at random takes so many of some size, and none of another one, on no path that carries anything.
  static constexpr std::size_t most_large_lost = 30, enough_small = 10;
  static constexpr auto longest_narrow = std::chrono::seconds(3);

  // What gets through where larger ones do not.
  std::size_t doubtless() const { return bytes_ > base ? base : least; }
  bool only_small_ones_arrive() const { return large_lost_ >= most_large_lost && small_arrived_ >= enough_small; }
  std::size_t candidate() const { return tried_ == 0 ? most_ : candidates[tried_ - 1]; }
  void next() {
    attempts_ = 0;
    do ++tried_;
    while (tried_ <= candidates.size() && (candidate() >= most_ || candidate() <= bytes_));
  }

  bool certain_;
  std::size_t most_;
  std::size_t bytes_;
  std::size_t tried_ = 0;  // of most_ and the candidates
  int attempts_ = 0;
  bool under_way_ = false;
  // Packets that are not doubtless, since one was acknowledged: how many were lost, and how many others were
  // acknowledged meanwhile.
  std::size_t large_lost_ = 0, small_arrived_ = 0;
  Time large_lost_since_{};
};

}  // namespace ranvier::transport
