// What workers ask of a parameter server.
#pragma once

#include <cstdint>

#include "ranvier/parameter_server.h"

namespace ranvier::replica::server_requests {

// Apart from what a program sends itself.
inline constexpr std::uint64_t request_tag = 0x70732d31;
inline constexpr std::uint64_t start_tag = 0x70732d32;
inline constexpr std::uint64_t values_tag = 0x70732d33;
inline constexpr std::uint64_t guest_values_tag = 0x70732d34;

enum class Kind : std::uint64_t { begin, push, pull, leave };

// What stands before the gradient of a push, or its code, and is all of any other request. Ranks of one job are of one
// build, which does not make every one of them right: tests/fuzz/requests_fuzz.cc.
struct Header {
  Kind kind = Kind::begin;
  std::uint64_t number = 0;         // push
  ParameterServer::Push push = {};  // push
  std::uint64_t stop_at = 0;        // begin
  std::uint64_t most = 0;           // begin
  Rank guest = -1;                  // push and pull: for whom, if not for the sender
};

}  // namespace ranvier::replica::server_requests
