// The grpc transport at its port: who may come there, which one it is, and what strangers say there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "ranvier/error.h"
#include "support/certificates.h"
#include "support/refusal.h"
#include "transport/strangers.h"
#include "transport/tcp_address.h"
#include "transport/tcp_door.h"
#include "transport/tcp_meeting.h"
#include "transport/tcp_transport.h"
#include "transport/tcp_world.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::unique_ptr<Endpoint>> endpoints(Rank world, const TcpOptions& options = {}) {
  return endpoints_of(grpc_endpoint, world, options);
}

std::uint16_t port_of(const Endpoint& endpoint) { return transport::TcpAddress::parse(endpoint.address())->port; }

// Every rank sends to every other one on every lane, and gets what was sent.
void exchange(const std::vector<std::unique_ptr<Transport>>& world) {
  constexpr std::size_t bytes = 300'000;
  const auto content = [](Rank from, Lane lane) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(1 + from * lane_count + lane));
  };
  on_threads(static_cast<Rank>(world.size()), [&](Rank rank) {
    Transport& own = *world[static_cast<std::size_t>(rank)];
    const auto deadline = Clock::now() + tcp_patience;
    for (Rank peer = 0; peer < own.world(); ++peer)
      for (Lane lane = 0; peer != rank && lane < lane_count; ++lane) {
        const std::vector<std::byte> mine = content(rank, lane), expected = content(peer, lane);
        std::vector<std::byte> got;
        std::size_t sent = 0;
        while ((sent < bytes || !own.sent(peer, lane) || got.size() < bytes) && Clock::now() < deadline) {
          if (sent < bytes) sent += own.try_send(peer, lane, {}, ConstBytes(mine).subspan(sent));
          const ConstBytes view = own.try_recv(peer, lane, {});
          got.insert(got.end(), view.begin(), view.end());
          own.release(peer, lane, view.size());
          if (view.empty()) own.wait(1ms);
        }
        EXPECT_TRUE(got == expected) << got.size() << " of " << bytes << " bytes from rank " << peer;
      }
  });
}

TEST(Grpc, RanksOfThisHostMeetAnyWay) {
  Certificates made;
  made.add("one", "ours");
  const std::vector<std::string> own = host_addresses();
  std::vector<TcpOptions> ways{
      {}, {.interface_address = "127.0.0.1"}, {.security = {.insecure = true}}, {.security = made.options("one")}};
  ways.push_back({.sockets = 3});
  ways.push_back({.security = made.options("one")});
  ways.back().security.encrypt_everywhere = true;
  if (!own.empty()) ways.push_back({.interface_address = own.front()});
  for (const TcpOptions& options : ways) exchange(connect_all(endpoints(2, options)));
}

TEST(Grpc, PortsComeFromTheRangeThatIsNamed) {
  const Fd first = listen_on("", {}, {});
  const std::uint16_t taken = local_address(first).port();
  constexpr Rank count = 8;
  const PortRange range{taken, static_cast<std::uint16_t>(std::min(taken + 100, 65535))};
  for (const bool insecure : {false, true}) {
    const TcpOptions options{.ports = range, .security = {.insecure = insecure}};
    std::vector<std::unique_ptr<Endpoint>> world(count);
    on_threads(count, [&](Rank rank) {
      world[static_cast<std::size_t>(rank)] = grpc_endpoint({.rank = rank, .world = count}, options);
    });
    std::set<std::uint16_t> ports;
    for (const auto& endpoint : world) ports.insert(port_of(*endpoint));
    EXPECT_EQ(ports.size(), std::size_t{count});
    EXPECT_GT(*ports.begin(), taken);
    EXPECT_LE(*ports.rbegin(), range.last);
    EXPECT_THAT(refusal(
                    [&] {
                      endpoints(1, {.ports = {taken, taken}, .security = options.security});
                    },
                    ErrorKind::config),
                HasSubstr("no port from " + std::to_string(taken) + " to " + std::to_string(taken) + " is free"));
  }
}

TEST(Grpc, AnotherProtocolAtItsPortDisturbsNobody) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::vector<std::string> said{"",
                                      "GET / HTTP/1.1\r\nHost: ranvier\r\n\r\n",
                                      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
                                      std::string(100'000, 'G'),
                                      preface,
                                      preface + std::string(5000, '\xff'),
                                      preface + std::string("\0\0\0\4\0\0\0\0\0", 9) +
                                          std::string("\0\xff\xff\1\x25\0\0\0\1", 9) + std::string(9000, 'h')};
  const auto meeting = endpoints(2);
  std::vector<Fd> crowd;
  const auto disturb = [&] {
    for (const auto& endpoint : meeting)
      for (const std::string& words : said) {
        crowd.push_back(stranger("127.0.0.1", port_of(*endpoint)));
        if (crowd.back()) send(crowd.back().get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
  };
  disturb();
  const auto world = connect_all(meeting);
  for (int round = 0; round < 3; ++round) {
    disturb();
    const std::jthread meanwhile([&] {
      if (round == 1) disturb();
    });
    exchange(world);
  }
}

TEST(Grpc, IsEncryptedByCertificatesOrNotAtAll) {
  for (const SecurityOptions& security :
       {SecurityOptions{.key_file = "/job.key"}, SecurityOptions{.encrypt_everywhere = true}})
    EXPECT_THAT(refusal([&] { endpoints(1, {.security = security}); }, ErrorKind::config),
                HasSubstr("by certificates only"));
}

// How many lanes wait at the door of rank 0 when its control plane has met that of rank 1, which comes to that so much
// later than its lanes.
std::size_t lanes_come_early(std::chrono::milliseconds later) {
  using transport::TcpMeeting;
  const WorldInfo called{.rank = 0, .world = 2}, calling{.rank = 1, .world = 2};
  const auto door = std::make_shared<transport::TcpDoor>("", PortRange{}, SocketBuffers{});
  const auto control_at = [&](const WorldInfo& info, std::shared_ptr<transport::TcpDoor> where) {
    return TcpMeeting(info, {.purpose = transport::TcpPurpose::control, .calls = true, .door = std::move(where)});
  };
  TcpMeeting control = control_at(called, door), other_control = control_at(calling, nullptr);
  std::vector<std::unique_ptr<Endpoint>> lanes;
  lanes.push_back(transport::grpc_endpoint_at(door, called, {}));
  lanes.push_back(grpc_endpoint(calling, {}));
  const std::vector<std::string> control_addresses{control.address(), other_control.address()};
  const auto addresses = addresses_of(lanes);
  const auto deadline = Clock::now() + tcp_patience;
  std::vector<std::unique_ptr<Transport>> world(2);
  std::jthread early([&] { world[1] = lanes[1]->connect(addresses, deadline); });
  std::jthread late([&] {
    std::this_thread::sleep_for(later);
    EXPECT_EQ(other_control.connect(control_addresses, {{0, 0}}, deadline).size(), 1U);
  });
  EXPECT_EQ(control.connect(control_addresses, {{1, 0}}, deadline).size(), 1U);
  const std::size_t waiting = door->waiting.size();
  world[0] = lanes[0]->connect(addresses, deadline);
  early.join();
  exchange(world);
  return waiting;
}

// They are HTTP/2 as the calls of the control plane are, and have shown that they are of this job. On a busy machine it
// takes a while until all of them are there.
TEST(Grpc, LanesThatComeWhileTheControlPlaneStillMeetsWaitAtTheDoor) {
  std::size_t waiting = 0;
  for (auto later = 200ms; waiting < lane_count && later < 10s; later *= 3) waiting = lanes_come_early(later);
  EXPECT_EQ(waiting, std::size_t{lane_count});
}

// A meeting of two of which one has come.
class HalfAMeeting {
 public:
  HalfAMeeting() : meeting_(endpoints(2)), addresses_(addresses_of(meeting_)) {
    first_ = std::jthread([this] { world_[0] = meeting_[0]->connect(addresses_, Clock::now() + tcp_patience); });
  }
  std::uint16_t port() const { return transport::TcpAddress::parse(addresses_[0])->port; }
  std::vector<std::unique_ptr<Transport>> complete() {
    world_[1] = meeting_[1]->connect(addresses_, Clock::now() + tcp_patience);
    first_.join();
    return std::move(world_);
  }

 private:
  const std::vector<std::unique_ptr<Endpoint>> meeting_;
  const std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Transport>> world_{2};
  std::jthread first_;
};

TEST(Grpc, IdleStrangersAreFewAndStayNoLongerThanTheMeeting) {
  constexpr std::size_t count = 200, most = 64 + lane_count;
  HalfAMeeting meeting;
  std::vector<Fd> crowd;
  for (std::size_t i = 0; i < count; ++i) {
    crowd.push_back(stranger("127.0.0.1", meeting.port()));
    ASSERT_TRUE(crowd.back());
  }
  for (std::size_t i = 0; i < count - most; ++i) EXPECT_TRUE(is_shown_out(crowd[i], tcp_patience)) << i;
  EXPECT_FALSE(is_shown_out(crowd.back()));
  const auto world = meeting.complete();
  exchange(world);
  for (const Fd& each : crowd) EXPECT_TRUE(is_shown_out(each, tcp_patience));
  EXPECT_FALSE(stranger("127.0.0.1", meeting.port())) << "the port is open while the job runs";
}

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Whether a rank with these options listens to somebody on another host; none where hosts cannot be made. Both are
// threads in network namespaces of their own, which are gone with them.
std::optional<bool> listens_to_another_host(const TcpOptions& options) {
  std::promise<pid_t> here;
  std::promise<bool> joined;
  std::promise<std::uint16_t> port;
  std::optional<bool> listens;
  std::jthread other([&] {
    const pid_t rank = here.get_future().get();
    joined.set_value(rank > 0 && unshare(CLONE_NEWNET) == 0 &&
                     run("ip link add eth0 type veth peer name eth0 netns " + std::to_string(rank)) &&
                     run("ip address add 10.1.2.2/24 dev eth0") && run("ip link set eth0 up"));
    const std::uint16_t there = port.get_future().get();
    if (there == 0) return;
    const Fd socket = stranger("10.1.2.1", there);
    EXPECT_TRUE(socket);
    listens = !is_shown_out(socket, options.security.insecure ? 500ms : 3s);  // it stands for 5 s
  });
  std::jthread rank([&] {
    const bool is_host = unshare(CLONE_NEWNET) == 0 && run("ip link set lo up");
    here.set_value(is_host ? gettid() : 0);
    if (!joined.get_future().get() || !run("ip address add 10.1.2.1/24 dev eth0") || !run("ip link set eth0 up"))
      return port.set_value(0);
    const auto meeting = endpoints(2, options);
    port.set_value(port_of(*meeting[0]));
    EXPECT_THROW(meeting[0]->connect(addresses_of(meeting), Clock::now() + 5s), Error);
  });
  rank.join();
  other.join();
  return listens;
}

TEST(Grpc, WhatIsNotEncryptedIsForThisHostOnly) {
  const auto plain = listens_to_another_host({});
  if (!plain) GTEST_SKIP() << "no network namespaces can be made here";
  EXPECT_FALSE(*plain);
  EXPECT_TRUE(listens_to_another_host({.security = {.insecure = true}}).value());
}

TEST(Grpc, AStrangerHasFiveSeconds) {
  HalfAMeeting meeting;
  const Fd idle = stranger("127.0.0.1", meeting.port());
  EXPECT_FALSE(is_shown_out(idle, 1s));
  EXPECT_TRUE(is_shown_out(idle, tcp_patience));
  exchange(meeting.complete());
}

// A sender has to hear that it may send more, which is said in the other direction, behind all that nobody
// reads there; and who says it stands in the middle of a frame.
TEST(Grpc, ALaneGoesOnThoughNobodyReadsWhatComesBackOnIt) {
  Certificates made;
  made.add("one", "ours");
  SecurityOptions encrypted = made.options("one");
  encrypted.encrypt_everywhere = true;
  for (const SecurityOptions& security : {SecurityOptions{}, encrypted}) {
    const auto world = connect_all(endpoints(2, {.security = security}));
    const std::vector<std::byte> much(1 << 20, std::byte{7});
    std::size_t back = 0;
    for (int vain = 0; vain < 2;) {
      const std::size_t accepted = world[1]->try_send(0, 0, {}, much);
      back += accepted;
      vain = accepted > 0 ? 0 : vain + 1;
      if (accepted == 0) world[1]->wait(10ms);
    }
    std::size_t sent = 0, received = 0;
    constexpr std::size_t all = std::size_t{100} << 20;
    const auto deadline = Clock::now() + tcp_patience;
    on_threads(2, [&](Rank rank) {
      while (rank == 0 && sent < all && Clock::now() < deadline) {
        const std::size_t accepted =
            world[0]->try_send(1, 0, {}, ConstBytes(much).first(std::min(much.size(), all - sent)));
        sent += accepted;
        if (accepted == 0) world[0]->wait(1s);
      }
      while (rank == 0 && !world[0]->sent(1, 0) && Clock::now() < deadline) world[0]->wait(10ms);
      while (rank == 1 && received < all && Clock::now() < deadline) {
        back += world[1]->try_send(0, 0, {}, much);
        const ConstBytes view = world[1]->try_recv(0, 0, {});
        received += view.size();
        world[1]->release(0, 0, view.size());
        if (view.empty()) world[1]->wait(1s);
      }
    });
    EXPECT_EQ(received, all) << sent;
    std::size_t read = 0;
    while (read < back && Clock::now() < deadline) {
      world[1]->sent(0, 0);
      const ConstBytes view = world[0]->try_recv(1, 0, {});
      EXPECT_TRUE(std::ranges::all_of(view, [](std::byte each) { return each == std::byte{7}; }));
      read += view.size();
      world[0]->release(1, 0, view.size());
    }
    EXPECT_EQ(read, back);
  }
}

// Lanes to somebody else's HTTP/2, which lets send little.
class Elsewhere {
 public:
  Elsewhere() {
    const Fd listener = listen_on("127.0.0.1", {}, {});
    std::vector<transport::Channel> channels(2 * lane_count);  // none to itself
    for (Lane each = 0; each < lane_count; ++each) {
      transport::Channel& channel = channels[lane_count + each];
      channel = transport::Channel(stranger("127.0.0.1", local_address(listener).port()));
      channel.begin_call(transport::CallRole::caller);
      while (others_.size() <= each)
        if (Fd other = accept_next(listener)) others_.push_back(std::move(other));
    }
    own_ = transport::tcp_transport("grpc", 0, 2, 1, std::move(channels), 1);
  }

  Transport& own() { return *own_; }
  std::size_t send() { return own_->try_send(1, lane, {}, much_); }
  void send_all(std::size_t expected) {
    std::size_t sent = 0;
    for (const auto until = Clock::now() + tcp_patience; sent < expected && Clock::now() < until;) {
      const std::size_t accepted = send();
      sent += accepted;
      if (accepted == 0) own_->wait(tcp_patience);
    }
    EXPECT_EQ(sent, expected);
  }
  std::size_t receive() {
    const ConstBytes view = own_->try_recv(1, lane, {});
    own_->release(1, lane, view.size());
    return view.size();
  }
  void say(std::string_view words) const {
    EXPECT_EQ(::send(others_[lane].get(), words.data(), words.size(), 0), static_cast<ssize_t>(words.size()));
  }
  // Leave to send 1000 more, on the connection and in the call.
  std::jthread let_send_later() const {
    return std::jthread([this] {
      std::this_thread::sleep_for(50ms);
      say({"\0\0\4\x8\0\0\0\0\0\0\0\3\xe8\0\0\4\x8\0\0\0\0\1\0\0\3\xe8", 2 * 13});
    });
  }

  static constexpr Lane lane = 3;
  static constexpr std::size_t at_first = 65'535 - 4 * 5;  // in four frames of the ordinary size
  static constexpr std::string_view settings{"\0\0\0\4\0\0\0\0\0", 9}, headers{"\0\0\1\1\4\0\0\0\1\x88", 10};

 private:
  const std::vector<std::byte> much_ = std::vector<std::byte>(100'000);
  std::vector<Fd> others_;
  std::unique_ptr<Transport> own_;
};

// For leave a sender waits asleep, though its socket has room.
TEST(Grpc, WhoMaySendNoMoreSleepsUntilItMay) {
  Elsewhere lanes;
  lanes.send_all(Elsewhere::at_first);
  int returns = 0;
  for (const auto start = Clock::now(); Clock::now() < start + 200ms; ++returns) {
    EXPECT_EQ(lanes.send(), 0U);
    lanes.own().wait(20ms);
  }
  EXPECT_LE(returns, 12);
  lanes.say(Elsewhere::settings);
  const auto later = lanes.let_send_later();
  lanes.send_all(995);
}

// Who receives on a slow line sleeps until a good part is there; leave to send is less than that.
TEST(Grpc, WhoAwaitsMuchIsWokenByLeaveToSend) {
  Elsewhere lanes;
  // A word each, or little would be read of him.
  lanes.say(std::string(Elsewhere::settings) + std::string(Elsewhere::headers));
  lanes.say({"\0\0\6\0\0\0\0\0\1\0\0\0\0\1.", 15});
  while (lanes.receive() == 0) lanes.own().wait(10ms);
  EXPECT_EQ(lanes.own().try_send(1, Elsewhere::lane, {}, std::vector<std::byte>(1)), 1U);
  const std::string frame = std::string("\0\x40\0\0\0\0\0\0\1\0\0\0\x3f\xfb", 14) + std::string(16'379, '.');
  const Expected much{.from = 1, .lane = Elsewhere::lane, .bytes = 10 << 20};
  for (const auto until = Clock::now() + tcp_patience; !lanes.own().expect({&much, 1}) && Clock::now() < until;) {
    lanes.say(frame);
    std::this_thread::sleep_for(2ms);
    for (std::size_t got = 0; got < 16'379 && Clock::now() < until;) got += lanes.receive();
  }
  lanes.send_all(Elsewhere::at_first - 6);
  EXPECT_EQ(lanes.send(), 0U);
  EXPECT_EQ(lanes.receive(), 0U);
  ASSERT_TRUE(lanes.own().expect({&much, 1}));
  const auto start = Clock::now();
  const auto later = lanes.let_send_later();
  lanes.own().wait(tcp_patience);
  EXPECT_LT(Clock::now() - start, tcp_patience / 2);
  EXPECT_EQ(lanes.send(), 995U);
}

TEST(Grpc, StrangersThatCallAreNotAnsweredAndShownOut) {
  HalfAMeeting meeting;
  for (int i = 0; i < 3; ++i) {
    Http2Caller caller(stranger("127.0.0.1", meeting.port()));
    const auto until = Clock::now() + 4s;  // before its time is over
    std::uint64_t answered = 0;
    for (; !caller.is_closed() && Clock::now() < until; answered += caller.hear(5ms))
      while (caller.open() < lane_count) caller.begin("/ranvier.Ranks/Connect");
    EXPECT_TRUE(caller.is_closed());
    EXPECT_EQ(answered, 0U);
  }
  exchange(meeting.complete());
}

TEST(Grpc, WhoseCertificateHasExpiredOrNamesAnotherHostIsNotLetIn) {
  Certificates made;
  made.add("good", "ours");
  made.add("old", "ours", -1);
  made.add("other", "ours", 2, "none", "elsewhere");
  const auto endpoint = [&](Rank rank, const std::string& certificate) {
    SecurityOptions security = made.options(certificate);
    security.encrypt_everywhere = true;
    return grpc_endpoint({.rank = rank, .world = 2}, {.security = security});
  };
  for (const std::string bad : {"old", "other"})
    for (const Rank who : {0, 1}) {
      const auto told = told_when_they_meet([&](Rank rank) { return endpoint(rank, rank == who ? bad : "good"); });
      EXPECT_THAT(told[0], HasSubstr("rank 1"));
      EXPECT_THAT(told[1], AllOf(HasSubstr("rank 0"), HasSubstr("certificate")));
    }
}

}  // namespace
}  // namespace ranvier
