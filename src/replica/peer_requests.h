// What a rank asks of the peer that it averages parameters with, and of rank 0, which gives samples out.
#pragma once

#include <cstdint>

namespace ranvier::replica::peer_requests {

// Apart from what a program sends itself.
inline constexpr std::uint64_t request_tag = 0x70656572;  // for an average
inline constexpr std::uint64_t start_tag = 0x70656573;
inline constexpr std::uint64_t average_tag = 0x70656574;
inline constexpr std::uint64_t desk_tag = 0x70656575;  // for samples

enum class Kind : std::uint64_t { begin, average, leave };

// What stands before the parameters of an average, and is all of any other request. Ranks of one job are of one build.
struct Header {
  Kind kind = Kind::begin;
  std::uint64_t ended = 0;    // begin: samples that have had their effect since the last time
  std::uint64_t stop_at = 0;  // begin
  std::uint64_t most = 0;     // begin
};

}  // namespace ranvier::replica::peer_requests
