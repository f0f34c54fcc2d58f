#include "transport/udp_world.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <span>

namespace ranvier::support {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Datagram = std::vector<std::byte>;

constexpr int udp_segment = 103;  // see udp_socket.cc
constexpr std::size_t most_heard = 300;

std::mutex mutex;  // of all until the next gap
bool listening = false;
std::vector<Datagram> heard;
std::mt19937 chance(1);

// The first datagram of a message, which may hold several.
Datagram first_datagram(const msghdr& message) {
  Datagram bytes;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* const begin = static_cast<const std::byte*>(message.msg_iov[i].iov_base);
    bytes.insert(bytes.end(), begin, begin + message.msg_iov[i].iov_len);
  }
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(const_cast<msghdr*>(&message), each)) {
    if (each->cmsg_level != IPPROTO_UDP || each->cmsg_type != udp_segment) continue;
    std::uint16_t size = 0;
    std::memcpy(&size, CMSG_DATA(each), sizeof size);
    bytes.resize(std::min<std::size_t>(bytes.size(), size));
  }
  return bytes;
}

void send_copies(int socket, const msghdr& message, const Datagram& honest) {
  const auto leave = [&](const Datagram& datagram) {
    sendto(socket, datagram.data(), datagram.size(), MSG_DONTWAIT, static_cast<const sockaddr*>(message.msg_name),
           message.msg_namelen);
  };
  Datagram changed = honest;
  changed[chance() % changed.size()] ^= static_cast<std::byte>(1U << chance() % 8);
  leave(changed);
  leave(Datagram(honest.begin(), honest.begin() + static_cast<std::ptrdiff_t>(chance() % honest.size())));
  leave(honest);
}

}  // namespace

void listen_to_udp_wire() {
  const std::lock_guard lock(mutex);
  heard.clear();
  listening = true;
}

std::vector<Datagram> heard_on_udp_wire() {
  const std::lock_guard lock(mutex);
  listening = false;
  return std::move(heard);
}

std::vector<std::unique_ptr<Endpoint>> udp_endpoints(Rank world, const UdpOptions& options) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (Rank rank = 0; rank < world; ++rank) endpoints.push_back(udp_endpoint({.rank = rank, .world = world}, options));
  return endpoints;
}

void send_all(Transport& transport, Rank to, Lane lane, ConstBytes bytes) {
  for (const auto deadline = Clock::now() + tcp_patience; !bytes.empty() && Clock::now() < deadline;) {
    const std::size_t accepted = transport.try_send(to, lane, {}, bytes);
    bytes = bytes.subspan(accepted);
    if (accepted == 0) transport.wait(10ms);
  }
  EXPECT_TRUE(bytes.empty());
}

std::vector<std::byte> receive_all(Transport& transport, Rank from, Lane lane, std::size_t bytes) {
  std::vector<std::byte> all;
  for (const auto deadline = Clock::now() + tcp_patience; all.size() < bytes && Clock::now() < deadline;) {
    const ConstBytes view = transport.try_recv(from, lane, {});
    const ConstBytes used = view.first(std::min(view.size(), bytes - all.size()));
    all.insert(all.end(), used.begin(), used.end());
    transport.release(from, lane, used.size());
    if (view.empty()) transport.wait(10ms);
  }
  EXPECT_EQ(all.size(), bytes);
  return all;
}

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

void expect_everything_delivered(const std::vector<std::unique_ptr<Transport>>& world, std::size_t bytes) {
  const auto count = static_cast<Rank>(world.size());
  on_threads(count, [&](Rank rank) {
    Transport& transport = *world[static_cast<std::size_t>(rank)];
    for (Lane lane = 0; lane < 2; ++lane)
      for (Rank step = 1; step < count; ++step) {
        const Rank to = (rank + step) % count, from = (rank + count - step) % count;
        const auto mine = random_bytes(bytes, static_cast<unsigned>(rank * 8 + lane));
        std::size_t sent = 0;
        std::vector<std::byte> got;
        const auto deadline = Clock::now() + tcp_patience;
        while (sent < bytes || got.size() < bytes) {
          if (Clock::now() > deadline) {
            ADD_FAILURE() << "rank " << rank << ", lane " << int{lane} << ": sent " << sent << ", got " << got.size();
            break;
          }
          const std::size_t accepted = transport.try_send(to, lane, {}, std::span(mine).subspan(sent));
          sent += accepted;
          const ConstBytes view = transport.try_recv(from, lane, {});
          const ConstBytes used = view.first(std::min(view.size(), bytes - got.size()));
          got.insert(got.end(), used.begin(), used.end());
          transport.release(from, lane, used.size());
          if (accepted == 0 && used.empty()) transport.wait(10ms);
        }
        EXPECT_EQ(got, random_bytes(bytes, static_cast<unsigned>(from * 8 + lane)));
      }
  });
}

}  // namespace ranvier::support

// In front of the C library's.
extern "C" int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  using namespace ranvier::support;
  const UdpWire wire = udp_wire;
  const std::lock_guard lock(mutex);
  if (listening && heard.size() < most_heard)
    for (unsigned i = 0; i < count; ++i) heard.push_back(first_datagram(messages[i].msg_hdr));
  if (wire == UdpWire::down) return static_cast<int>(count);
  if (wire == UdpWire::honest) return static_cast<int>(syscall(SYS_sendmmsg, socket, messages, count, flags));
  const msghdr& message = messages[0].msg_hdr;
  if (chance() % 8 == 0) return 1;
  const Datagram honest = first_datagram(message);
  const auto taken = syscall(SYS_sendmmsg, socket, messages, 1, flags);
  if (taken == 1 && !honest.empty()) send_copies(socket, message, honest);
  return static_cast<int>(taken);
}
