// libFuzzer target: what a stranger says at the port where ranks of tcp meet. The first byte says whether connections
// are calls of gRPC, and whether he knows the token of the job and writes it where a hello has it, inside a call then;
// the others are what he sends before the ranks come. Who does not know it keeps nobody from meeting; who does may take
// a rank's place, and no more than that.
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "ranvier/error.h"
#include "transport/http2_call.h"
#include "transport/tcp_meeting.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;
using namespace std::chrono_literals;

void require(bool held) {
  if (!held) std::abort();
}

// Whether the link stands.
bool meet(TcpMeeting& meeting, const std::vector<std::string>& addresses, Rank peer, std::chrono::milliseconds limit) {
  try {
    const auto channels = meeting.connect(addresses, {{.peer = peer}}, std::chrono::steady_clock::now() + limit);
    require(channels.size() == 1 && channels[0]);
    return true;
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::unreachable);
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const bool knows = (data[0] & 1) != 0, calls = (data[0] & 2) != 0;
  std::vector<std::uint8_t> said(data + 1, data + size);
  const MeetingOptions options{.interface_address = "127.0.0.1", .security = {.insecure = true}, .calls = calls};
  TcpMeeting called({.rank = 0, .world = 2}, options), calling({.rank = 1, .world = 2}, options);
  const std::vector<std::string> addresses{called.address(), calling.address()};
  const TcpAddress place = *TcpAddress::parse(addresses[0]);
  for (std::size_t at = offsetof(Hello, token); knows && at + sizeof(Token) <= said.size(); at += sizeof(Hello))
    std::memcpy(said.data() + at, &place.token, sizeof(Token));
  if (knows && calls) {
    Http2Call call(CallRole::caller, false);
    const Http2Call::Due due = call.due(said.size());
    const auto* const words = reinterpret_cast<const std::uint8_t*>(due.words.data());
    said.resize(due.content);
    said.insert(said.begin(), words, words + due.words.size());
  }
  Fd stranger = start_connect(*parse_address("127.0.0.1", place.port), {});
  pollfd ready{stranger.get(), POLLOUT, 0};
  require(stranger && poll(&ready, 1, 5000) == 1);
  if (!said.empty()) send(stranger.get(), said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const std::chrono::milliseconds limit = knows ? 50ms : 20s;
  bool here = false;
  {
    const std::jthread other([&] { here = meet(calling, addresses, 0, limit); });
    const bool there = meet(called, addresses, 1, limit);
    require(knows || there);
  }
  require(knows || here);
  return 0;
}
