#include "transport/udp_meeting.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <utility>

#include "base/secret.h"
#include "ranvier/error.h"
#include "transport/published_address.h"
#include "transport/tcp_meeting.h"

namespace ranvier::transport {
namespace {

std::uint64_t random_key() {
  std::array<std::uint64_t, 1> key{};
  fill_with_random(std::as_writable_bytes(std::span(key)));
  return key[0];
}

}  // namespace

UdpMeeting::UdpMeeting(const WorldInfo& info, const UdpOptions& options, std::shared_ptr<TcpDoor> door)
    : info_(info), options_(options), key_(random_key()) {
  if (options.security.insecure) return;
  meeting_ = std::make_unique<TcpMeeting>(info, MeetingOptions{.purpose = TcpPurpose::data,
                                                               .interface_address = options.interface_address,
                                                               .security = options.security,
                                                               .ports = options.ports,
                                                               .door = std::move(door)});
}

UdpMeeting::~UdpMeeting() = default;

UdpAddress UdpMeeting::address() const {
  UdpAddress address;
  address.key = key_;
  if (meeting_) {
    address.meeting = *TcpAddress::parse(meeting_->address());
  } else {
    set_place(address.meeting, options_.interface_address);
  }
  return address;
}

// With ranks of the same host, too: whether what is sent them leaves it is known from where they were reached.
std::vector<std::optional<UdpSecrets>> UdpMeeting::connect(const std::vector<UdpAddress>& addresses,
                                                           std::chrono::steady_clock::time_point deadline) {
  const UdpAddress& own = addresses[static_cast<std::size_t>(info_.rank)];
  std::vector<std::string> texts;
  std::vector<TcpLink> links;
  for (Rank rank = 0; rank < info_.world; ++rank) {
    const UdpAddress& peer = addresses[static_cast<std::size_t>(rank)];
    if ((peer.meeting.port == 0) != (own.meeting.port == 0))
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} encrypts what it sends by udp and rank {} does not; give all ranks the same "
                              "--insecure or RANVIER_INSECURE",
                              own.meeting.port == 0 ? rank : info_.rank, own.meeting.port == 0 ? info_.rank : rank),
                  rank);
    texts.push_back(peer.meeting.text());
    if (rank != info_.rank) links.push_back({.peer = rank});
  }
  std::vector<std::optional<UdpSecrets>> secrets(addresses.size());
  if (!meeting_) return secrets;
  const std::vector<Channel> channels = meeting_->connect(texts, links, deadline);
  for (std::size_t i = 0; i < links.size(); ++i)
    if (channels[i].tls() != nullptr)
      secrets[static_cast<std::size_t>(links[i].peer)] =
          udp_secrets(*channels[i].tls(), links[i].peer < info_.rank ? TlsRole::dialler : TlsRole::guest);
  return secrets;
}

}  // namespace ranvier::transport
