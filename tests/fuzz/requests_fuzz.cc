// libFuzzer target: what a rank that runs wild asks of a parameter server, and of a peer that averages with it. The
// first byte says which of them, by floats or by codes, and with a bound of steps or without; then come requests, each
// behind a byte with its length. Whoever is asked answers, or ends the job with an Error that names the other; and
// nobody waits for long.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "exchange/same_spec.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/parameter_server.h"
#include "ranvier/peer_average.h"
#include "replica/peer_requests.h"
#include "replica/server_requests.h"

namespace {

using namespace ranvier;
using namespace std::chrono_literals;
namespace peer = replica::peer_requests;
namespace server = replica::server_requests;

constexpr Rank asked = 0;
constexpr Rank wild_one = 1;
constexpr std::size_t parameters = 8;
constexpr std::array<float, parameters> values{1, -2, 3, -4, 5, -6, 7, -8};

void require(bool held, const char* said) {
  if (held) return;
  std::fputs(said, stderr);
  std::abort();
}

struct Case {
  bool peers;
  bool bound;
  std::string codec;
  std::vector<std::vector<std::byte>> requests;
};

Case case_of(std::span<const std::uint8_t> data) {
  Case one{.peers = (data[0] & 1) != 0,
           .bound = (data[0] & 2) != 0,
           .codec = (data[0] & 4) != 0 ? "int8" : "none",
           .requests = {}};
  for (data = data.subspan(1); !data.empty();) {
    const std::size_t length = std::min<std::size_t>(data[0], data.size() - 1);
    const auto bytes = std::as_bytes(data.subspan(1, length));
    one.requests.emplace_back(bytes.begin(), bytes.end());
    data = data.subspan(1 + length);
  }
  return one;
}

// Of a request that begins with a Header; of a shorter one what it would be.
template <class Header>
Header header_of(std::span<const std::byte> request) {
  Header header;
  if (request.size() >= sizeof header) std::memcpy(&header, request.data(), sizeof header);
  return header;
}

// How an answer comes; none of a request that gets none, or only when other ranks have got on.
struct Answer {
  std::uint64_t tag;
  bool is_code;
};
std::optional<Answer> answer_to(const Case& one, std::span<const std::byte> request) {
  const bool codes = one.codec != "none";
  if (one.peers) {
    if (header_of<peer::Header>(request).kind != peer::Kind::average) return std::nullopt;
    return Answer{peer::average_tag, codes};
  }
  const auto header = header_of<server::Header>(request);
  if (header.kind != server::Kind::push && header.kind != server::Kind::pull) return std::nullopt;
  if (header.guest >= 0) return Answer{server::guest_values_tag, false};
  return Answer{server::values_tag, codes && header.kind == server::Kind::push};
}

// The one who asks, until he has left or is refused: over this transport nobody else would tell him.
class Wild {
 public:
  Wild(Communicator& comm, const Case& one, const std::atomic<bool>& refused)
      : comm_(comm), one_(one), refused_(refused), leaves_(one.peers ? sizeof(peer::Header) : sizeof(server::Header)) {
    std::memcpy(leaves_.data(), &last_, sizeof last_);
  }

  void ask() {
    demand_same_spec(one_.codec, comm_);  // as whoever is asked does at first
    std::array<float, parameters> agreed = values;
    if (one_.peers && one_.codec != "none") comm_.broadcast(agreed, asked);
    for (const std::vector<std::byte>& request : one_.requests)
      if (!send(request)) return;
    if (!left_ && !send(leaves_)) return;
    if (!one_.peers) return;
    Work leaving = comm_.start_send({leaves_.data(), leaves_.size(), DType::u8}, asked, peer::desk_tag);
    ended(leaving);
  }

 private:
  std::uint64_t request_tag(std::span<const std::byte> request) const {
    if (!one_.peers) return server::request_tag;
    return header_of<peer::Header>(request).kind == peer::Kind::begin ? peer::desk_tag : peer::request_tag;
  }
  std::uint64_t start_tag() const { return one_.peers ? peer::start_tag : server::start_tag; }

  // Whether it has been answered, where it is to be.
  bool send(const std::vector<std::byte>& request) {
    if (left_) return true;
    std::optional<Work> answering;
    if (const auto answer = answer_to(one_, request))
      answering = answer->is_code
                      ? comm_.start_recv_at_most({code_.data(), code_.size(), DType::u8}, asked, answer->tag)
                      : comm_.start_recv(held_, asked, answer->tag);
    else  // perhaps, when others have got on
      beginning_.push_back(comm_.start_recv({start_.data(), sizeof start_, DType::u8}, asked, start_tag()));
    if (request.size() >= leaves_.size()) left_ = std::memcmp(request.data(), &last_, sizeof last_) == 0;
    Work sending = comm_.start_send({request.data(), request.size(), DType::u8}, asked, request_tag(request));
    return ended(sending) && (!answering || left_ || ended(*answering));
  }

  bool ended(Work& work) {
    while (!work.wait_for(1ms))
      if (refused_) return false;
    return true;
  }

  Communicator& comm_;
  const Case& one_;
  const std::atomic<bool>& refused_;
  const std::uint64_t last_ =
      one_.peers ? static_cast<std::uint64_t>(peer::Kind::leave) : static_cast<std::uint64_t>(server::Kind::leave);
  std::vector<std::byte> leaves_;
  std::array<std::byte, 256> code_{};
  std::array<float, parameters> held_{};
  std::array<std::uint64_t, 3> start_{};
  std::vector<Work> beginning_;
  bool left_ = false;
};

void serve(Communicator& comm, const Case& one) {
  if (one.peers) {
    PeerAverage average(comm, values, 0, 1, one.codec);
    return average.leave();
  }
  ServerRule rule;
  if (one.bound) rule.bound = 2;
  ParameterServer served(comm, rule, values, 0, {.owners = {0}, .compress = one.codec});
  served.leave();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const Case one = case_of({data, size});
  auto transports = loopback_world(2);
  std::array<std::unique_ptr<Communicator>, 2> comms;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    comms[rank] = Communicator::over(std::move(transports[rank]), {.timeout = 5s});
  std::atomic<bool> refused = false;
  const std::jthread wild([&] {
    try {
      Wild(*comms[wild_one], one, refused).ask();
    } catch (const Error& error) {
      require(error.kind() == ErrorKind::aborted || error.kind() == ErrorKind::peer_lost, error.what());
    }
  });
  try {
    serve(*comms[asked], one);
  } catch (const Error& error) {
    // Or of a call behind it, which quotes it.
    require(error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::aborted, error.what());
    require(std::strstr(error.what(), "rank 1") != nullptr, error.what());
    refused = true;
  }
  return 0;
}
