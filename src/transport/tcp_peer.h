// What a rank has found out about its way to another one while they meet.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/socket.h"

namespace ranvier::transport {

class TcpPeer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  std::size_t open_links = 0;    // to be made
  std::string turned_away = {};  // why a guest that claimed to be this rank was
  bool listens = false;          // it can be reached from here
  bool is_gone = false;          // it has ended, or given up

  // Where it may be reached, in the order in which to try.
  void listens_at(std::vector<SocketAddress> candidates);
  const std::vector<SocketAddress>& candidates() const { return candidates_; }

  // Of an attempt on a candidate: something else than nobody's listening, …
  void failed(std::size_t candidate, std::string problem);
  // … or that. Whether it has ended, or given up: whoever has told his address listens there until he is connected with
  // all, so that refusals of a moment say so. Where this rank only knocks, since the other is the one to dial, a
  // firewall between hosts may refuse as well: that one is given longer.
  bool refused(std::size_t candidate, bool knocks, Time now);

  // The addresses and what came of them.
  std::string tried() const;

 private:
  std::vector<SocketAddress> candidates_;
  std::vector<std::string> problems_;  // the last one of each candidate
  std::size_t refusals_ = 0;           // in a row
  std::optional<Time> refused_since_;  // by every candidate
};

}  // namespace ranvier::transport
