// How tcp ranks find each other: late and missing ranks, strangers at the door, wrong tokens, addresses and limits.
#include "transport/tcp_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "base/secret.h"
#include "ranvier/error.h"
#include "transport/tcp_hello.h"
#include "transport/tcp_world.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using namespace support;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The error that `action` ends with.
template <class Action>
Error error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::internal, ""};
}

void expect_connected(const std::vector<std::unique_ptr<Transport>>& world) {
  for (const auto& from : world)
    for (const auto& to : world) {
      if (from == to) continue;
      for (Lane lane = 0; lane < lane_count; ++lane) {
        const std::string text = std::to_string(from->rank()) + ">" + std::to_string(to->rank());
        ASSERT_EQ(from->try_send(to->rank(), lane, {}, bytes_of(text)), text.size());
        ConstBytes view;
        for (const auto deadline = Clock::now() + tcp_patience; view.size() < text.size() && Clock::now() < deadline;) {
          view = to->try_recv(from->rank(), lane, {});
          if (view.size() < text.size()) to->wait(10ms);
        }
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(view.data()), view.size()), text);
        to->release(from->rank(), lane, view.size());
      }
    }
}

// A connection to the listener of an endpoint, by somebody who is not a rank.
Fd stranger(const std::string& address_text) {
  const auto address = TcpAddress::parse(address_text);
  Fd socket = start_connect(*parse_address("127.0.0.1", address->port), {});
  pollfd ready{socket.get(), POLLOUT, 0};
  poll(&ready, 1, 10'000);
  return socket;
}

TEST(TcpMeeting, WorldsOfAnySizeMeet) {
  for (const Rank world : {1, 2, 3, 8}) expect_connected(tcp_world(world));
}

TEST(TcpMeeting, RanksThatComeLateAreWaitedFor) {
  const auto endpoints = tcp_endpoints(3);
  const auto addresses = addresses_of(endpoints);
  std::vector<std::unique_ptr<Transport>> world(3);
  on_threads(3, [&](Rank rank) {
    std::this_thread::sleep_for(rank * 700ms);  // longer than a first attempt may take
    const auto index = static_cast<std::size_t>(rank);
    world[index] = endpoints[index]->connect(addresses, Clock::now() + tcp_patience);
  });
  expect_connected(world);
}

TEST(TcpMeeting, ARankThatNeverComesIsNamedWithTheAddressesThatWereTried) {
  auto endpoints = tcp_endpoints(3);
  const auto addresses = addresses_of(endpoints);
  const auto port = TcpAddress::parse(addresses[1])->port;
  endpoints[1].reset();
  std::vector<std::future<Error>> errors;
  for (const std::size_t rank : {0U, 2U})
    errors.push_back(std::async(std::launch::async, [&, rank] {
      return error_of([&] { endpoints[rank]->connect(addresses, Clock::now() + 2s); });
    }));
  for (auto& pending : errors) {
    const Error error = pending.get();
    EXPECT_EQ(error.kind(), ErrorKind::unreachable);
    EXPECT_EQ(error.culprit(), 1);
    const bool dialled = std::string_view(error.what()).starts_with("rank 2 ");
    EXPECT_THAT(error.what(), HasSubstr("rank 1 ("));
    EXPECT_THAT(error.what(), HasSubstr(dialled ? "127.0.0.1:" + std::to_string(port) + ": Connection refused"
                                                : std::string("it did not connect")));
  }
}

TEST(TcpMeeting, AHundredMissingRanksDoNotMakeAHundredLines) {
  const Rank count = 101;
  const auto endpoint = tcp_endpoint({.rank = 0, .world = count});
  const std::vector<std::string> addresses(count, endpoint->address());
  const Error error = error_of([&] { endpoint->connect(addresses, Clock::now() + 50ms); });
  EXPECT_EQ(error.culprit(), -1);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 8 "), HasSubstr("92 more"), testing::Not(HasSubstr("rank 9 "))));
}

TEST(TcpMeeting, StrangersAtTheDoorHoldNobodyUp) {
  const auto endpoints = tcp_endpoints(3);
  std::vector<Fd> crowd;
  for (const auto& address : addresses_of(endpoints))
    for (int i = 0; i < 200; ++i) {
      crowd.push_back(stranger(address));
      const std::string garbage(static_cast<std::size_t>(i) * 5, 'G');  // some silent, some short, some long
      send(crowd.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (i % 3 == 0) crowd.back().reset();
    }
  expect_connected(connect_all(endpoints));
}

// Whether the other side has ended the connection, now or within `patience`.
bool was_dropped(const Fd& socket, std::chrono::milliseconds patience = 0ms) {
  pollfd ready{socket.get(), POLLIN, 0};
  char byte;
  return poll(&ready, 1, static_cast<int>(patience.count())) == 1 && recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
}

// Rank 0 of 2 waits for rank 1 while strangers come; in the end both meet.
class MeetingWithStrangers {
 public:
  explicit MeetingWithStrangers(std::chrono::milliseconds greeting_limit)
      : first_({.rank = 0, .world = 2}, {.greeting_limit = greeting_limit}), second_({.rank = 1, .world = 2}, {}) {
    meeting_ = std::async(std::launch::async, [this] { return meet(first_, 1); });
  }
  std::string address() const { return first_.address(); }
  bool ends_well() { return meet(second_, 0) == 1 && meeting_.get() == 1; }

 private:
  std::size_t meet(TcpMeeting& meeting, Rank other) const {
    const std::vector<std::string> addresses{first_.address(), second_.address()};
    return meeting.connect(addresses, {{other, 0}}, Clock::now() + tcp_patience).size();
  }

  TcpMeeting first_, second_;
  std::future<std::size_t> meeting_;
};

TEST(TcpMeeting, Of64StrangersBeyondTheExpectedTheOldestHasToGo) {
  MeetingWithStrangers job(tcp_patience);  // none goes because of its age
  constexpr std::size_t kept = 64 + 1, more = 10;
  std::vector<Fd> crowd;
  for (std::size_t i = 0; i < kept + more; ++i) crowd.push_back(stranger(job.address()));
  for (std::size_t i = 0; i < more; ++i) EXPECT_TRUE(was_dropped(crowd[i], tcp_patience)) << i;
  for (std::size_t i = more; i < crowd.size(); ++i) EXPECT_FALSE(was_dropped(crowd[i])) << i;
  EXPECT_TRUE(job.ends_well());
}

TEST(TcpMeeting, WhoDoesNotProveWhoHeIsInTimeHasToGo) {
  EXPECT_EQ(MeetingOptions().greeting_limit, 5s);
  MeetingWithStrangers job(100ms);
  const Fd silent = stranger(job.address()), slow = stranger(job.address());
  send(slow.get(), "R", 1, MSG_NOSIGNAL);
  EXPECT_TRUE(was_dropped(silent, tcp_patience));
  EXPECT_TRUE(was_dropped(slow, tcp_patience));
  EXPECT_TRUE(job.ends_well());
}

// Whoever has confirmed counts on the connection and never dials again.
TEST(TcpMeeting, WhoConfirmsWhileTheRankStandsStillIsConnected) {
  constexpr auto limit = 500ms;
  std::string address;
  Hello hello;
  Fd dialler;
  bool welcomed = false;
  const auto dial_and_stand_still = [&] {
    if (!dialler) {
      dialler = stranger(address);
      send(dialler.get(), &hello, sizeof hello, MSG_NOSIGNAL);
    }
    Hello welcome;
    if (welcomed || recv(dialler.get(), &welcome, sizeof welcome, MSG_DONTWAIT) != ssize_t{sizeof welcome}) return;
    welcomed = true;
    Hello confirm = hello;
    confirm.step = HelloStep::confirm;
    send(dialler.get(), &confirm, sizeof confirm, MSG_NOSIGNAL);
    std::this_thread::sleep_for(2 * limit);
  };
  TcpMeeting meeting({.rank = 0, .world = 2, .check_peers = dial_and_stand_still}, {.greeting_limit = limit});
  address = meeting.address();
  hello.token = TcpAddress::parse(address)->token;
  hello.from = 1;
  EXPECT_EQ(meeting.connect({address, address}, {{1, 0}}, Clock::now() + 5s).size(), 1U);
  EXPECT_TRUE(welcomed);
}

TEST(TcpMeeting, WhoConnectsLaterFindsNobody) {
  const auto endpoints = tcp_endpoints(2);
  const auto addresses = addresses_of(endpoints);
  const auto world = connect_all(endpoints);
  const Fd late = stranger(addresses[0]);
  EXPECT_EQ(connect_result(late), ECONNREFUSED);
  expect_connected(world);
}

// How many wait at the door for a second meeting of two, of whom the one that dials comes to it `late` before it comes
// to the first one.
std::size_t come_early(std::chrono::milliseconds late) {
  const auto door = std::make_shared<TcpDoor>("", PortRange{}, SocketBuffers{});
  std::vector<TcpMeeting> control, data;
  std::vector<std::string> control_addresses, data_addresses;
  for (Rank rank = 0; rank < 2; ++rank) {
    // The one that dials does so on two threads, and a door is for one.
    const auto shared = rank == 0 ? door : nullptr;
    const WorldInfo info{.rank = rank, .world = 2};
    control.emplace_back(info, MeetingOptions{.purpose = TcpPurpose::control, .door = shared});
    data.emplace_back(info, MeetingOptions{.purpose = TcpPurpose::data, .door = shared});
    control_addresses.push_back(control.back().address());
    data_addresses.push_back(data.back().address());
  }
  const auto deadline = Clock::now() + tcp_patience;
  std::jthread next([&] { EXPECT_EQ(data[1].connect(data_addresses, {{0, 0}}, deadline).size(), 1U); });
  std::jthread first([&] {
    std::this_thread::sleep_for(late);
    EXPECT_EQ(control[1].connect(control_addresses, {{0, 0}}, deadline).size(), 1U);
  });
  EXPECT_EQ(control[0].connect(control_addresses, {{1, 0}}, deadline).size(), 1U);
  const std::size_t waiting = door->waiting.size();
  EXPECT_EQ(data[0].connect(data_addresses, {{1, 0}}, deadline).size(), 1U);
  return waiting;
}

// On a busy machine it takes a while until he is there.
TEST(TcpMeeting, WhoComesForTheNextMeetingWaitsAtTheSameDoor) {
  std::size_t waiting = 0;
  for (auto late = 200ms; waiting < 1 && late < 10s; late *= 3) waiting = come_early(late);
  EXPECT_EQ(waiting, 1U);
}

// Where nothing but HTTP/2 passes, the first bytes show it: its preface, or in TLS the name that RFC 7301 has for it.
TEST(TcpMeeting, CallsAreHttp2FromTheFirstByte) {
  for (const bool encrypted : {false, true}) {
    const Fd listener = listen_on("127.0.0.1", {}, {});
    const TcpAddress address{
        .host = "", .token = random_token(), .port = local_address(listener).port(), .ips = {"127.0.0.1"}};
    std::jthread rank([&] {
      TcpMeeting meeting({.rank = 1, .world = 2}, {.security = {.encrypt_everywhere = encrypted}, .calls = true});
      EXPECT_THROW(meeting.connect({address.text(), meeting.address()}, {{0, 0}}, Clock::now() + 1s), Error);
    });
    pollfd ready{listener.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 10'000), 1);
    const Fd socket = accept_next(listener);
    ready.fd = socket.get();
    ASSERT_EQ(poll(&ready, 1, 10'000), 1);
    std::string said(4096, '\0');
    said.resize(static_cast<std::size_t>(recv(socket.get(), said.data(), said.size(), 0)));
    if (!encrypted) {
      EXPECT_THAT(said, testing::StartsWith("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
      continue;
    }
    EXPECT_THAT(said, testing::StartsWith("\x16\x03"));
    EXPECT_THAT(said, HasSubstr(std::string("\0\x10\0\x05\0\x03\x02h2", 9)));
  }
}

// What stands on the way of HTTP/2 forgets connections that say nothing.
TEST(TcpMeeting, CallsAreKeptAliveByTheKernel) {
  for (const bool calls : {false, true}) {
    std::vector<TcpMeeting> meetings;
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < 2; ++rank) {
      meetings.emplace_back(WorldInfo{.rank = rank, .world = 2}, MeetingOptions{.calls = calls});
      addresses.push_back(meetings.back().address());
    }
    on_threads(2, [&](Rank rank) {
      const auto channels = meetings[static_cast<std::size_t>(rank)].connect(addresses, {{.peer = 1 - rank}},
                                                                             Clock::now() + tcp_patience);
      int kept = 0, seconds = 0;
      socklen_t size = sizeof kept;
      EXPECT_EQ(getsockopt(channels.at(0).socket().get(), SOL_SOCKET, SO_KEEPALIVE, &kept, &size), 0);
      EXPECT_EQ(getsockopt(channels.at(0).socket().get(), IPPROTO_TCP, TCP_KEEPIDLE, &seconds, &size), 0);
      EXPECT_EQ(kept == 1, calls);
      EXPECT_EQ(seconds <= 20, calls);
    });
  }
}

TEST(TcpMeeting, PortsComeFromTheRangeThatIsNamed) {
  const Fd first = listen_on("127.0.0.1", {}, {});
  const std::uint16_t taken = local_address(first).port();
  const auto last = static_cast<std::uint16_t>(taken + 20);
  const auto port_of = [&](const PortRange& ports) {
    return TcpAddress::parse(
               tcp_endpoint({.rank = 0, .world = 2}, {.interface_address = "127.0.0.1", .ports = ports})->address())
        ->port;
  };
  EXPECT_THAT(port_of({taken, last}), AllOf(testing::Gt(taken), testing::Le(last)));
  EXPECT_THAT(error_of([&] { port_of({taken, taken}); }).what(), HasSubstr("no port from"));
  EXPECT_THAT(error_of([&] {
                port_of({30, 20});
              }).what(),
              HasSubstr("no port from 30 to 20; name the smaller one first"));
}

TEST(TcpMeeting, OnlyTheRightTokenEpochRanksAndPurposeAreLetIn) {
  struct Impostor {
    const char* lie;
    void (*tell)(Hello&);
  };
  const Impostor impostors[] = {
      {"came from another job", [](Hello& hello) { hello.token[0] ^= std::byte{1}; }},
      {"was of epoch 4 and this is 3", [](Hello& hello) { hello.epoch = 4; }},
      {"did not connect", [](Hello& hello) { hello.magic ^= 1; }},
      {"did not connect", [](Hello& hello) { hello.version = 9; }},
      {"did not connect", [](Hello& hello) { hello.from = 0; }},
      {"did not connect", [](Hello& hello) { hello.from = -1; }},
      {"did not connect", [](Hello& hello) { hello.from = 2; }},
      {"did not connect", [](Hello& hello) { hello.channel = lane_count; }},
      {"another job", [](Hello& hello) { hello.to = 1; }},
      {"did not connect", [](Hello& hello) { hello.purpose = TcpPurpose::control; }},
      {"another job", [](Hello& hello) { hello.step = HelloStep::confirm; }},
  };
  const auto said_of = [](const Impostor& impostor, std::chrono::milliseconds limit) -> std::string {
    const auto endpoint = tcp_endpoint({.rank = 0, .world = 2, .epoch = 3});
    Hello hello;
    hello.epoch = 3;
    hello.token = TcpAddress::parse(endpoint->address())->token;
    hello.from = 1;
    impostor.tell(hello);
    const Fd socket = stranger(endpoint->address());
    send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL);
    const Error error = error_of([&] {
      endpoint->connect({endpoint->address(), endpoint->address()}, Clock::now() + limit);
    });
    Hello welcome;
    EXPECT_LE(recv(socket.get(), &welcome, sizeof welcome, MSG_DONTWAIT), 0) << "was welcomed";
    return error.what();
  };
  for (const Impostor& impostor : impostors) {
    std::string said;  // on a busy machine it takes a while until he is heard
    for (auto limit = 300ms; said.find(impostor.lie) == std::string::npos && limit < 10s; limit *= 4)
      said = said_of(impostor, limit);
    EXPECT_THAT(said, HasSubstr(impostor.lie));
  }
}

TEST(TcpMeeting, AnAnswerFromSomethingElseIsNotTakenForTheRank) {
  // Rank 0's published address leads to a listener that echoes: not even rank 1's own hello may satisfy it.
  const Fd echo = listen_on("127.0.0.1", {}, {});
  TcpAddress address{.host = "", .token = random_token(), .port = local_address(echo).port(), .ips = {"127.0.0.1"}};
  std::atomic<bool> stop = false;
  std::jthread echoing([&] {
    std::vector<Fd> accepted;
    while (!stop) {
      if (Fd next = accept_next(echo)) accepted.push_back(std::move(next));
      for (const Fd& socket : accepted) {
        char memory[256];
        const ssize_t got = recv(socket.get(), memory, sizeof memory, MSG_DONTWAIT);
        if (got > 0) send(socket.get(), memory, static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
      std::this_thread::sleep_for(1ms);
    }
  });
  std::string said;  // on a busy machine it takes a while until it has answered
  for (auto limit = 1000ms; said.find("something else") == std::string::npos && limit < 30s; limit *= 4) {
    const auto endpoint = tcp_endpoint({.rank = 1, .world = 2});
    const Error error = error_of([&] {
      endpoint->connect({address.text(), endpoint->address()}, Clock::now() + limit);
    });
    EXPECT_EQ(error.kind(), ErrorKind::unreachable);
    said = error.what();
  }
  stop = true;
  EXPECT_THAT(said, HasSubstr("something else answered"));
}

TEST(TcpMeeting, ADeadAddressDoesNotHideALiveOne) {
  const auto endpoints = tcp_endpoints(2);
  auto addresses = addresses_of(endpoints);
  auto first = *TcpAddress::parse(addresses[0]);
  first.host.clear();
  first.ips = {"127.0.0.77", "203.0.113.1", "127.0.0.1"};  // wrong host of ours, TEST-NET-3 (RFC 5737), the right one
  const Fd decoy = listen_on("127.0.0.77", {}, {});
  addresses[0] = first.text();
  std::vector<std::unique_ptr<Transport>> world(2);
  on_threads(2, [&](Rank rank) {
    const auto index = static_cast<std::size_t>(rank);
    world[index] = endpoints[index]->connect(addresses, Clock::now() + tcp_patience);
  });
  expect_connected(world);
}

TEST(TcpMeeting, AnInterfaceAddressIsTheOnlyOnePublished) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (Rank rank = 0; rank < 2; ++rank)
    endpoints.push_back(tcp_endpoint({.rank = rank, .world = 2}, {.interface_address = "127.0.0.1"}));
  const auto address = TcpAddress::parse(endpoints[0]->address());
  EXPECT_THAT(address->ips, testing::ElementsAre("127.0.0.1"));
  EXPECT_EQ(address->host, "");
  expect_connected(connect_all(endpoints));
}

TEST(TcpMeeting, AnInterfaceAddressThatIsNotOursIsAConfigurationError) {
  for (const char* const ip : {"203.0.113.1", "eth99", "1.2.3"}) {
    const Error error = error_of([&] { tcp_endpoint({.rank = 0, .world = 2}, {.interface_address = ip}); });
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_THAT(error.what(), HasSubstr(ip));
  }
}

TEST(TcpMeeting, RanksThatWantDifferentNumbersOfSocketsAreNamedAtOnce) {
  const auto one = tcp_endpoint({.rank = 0, .world = 2});
  const auto four = tcp_endpoint({.rank = 1, .world = 2}, {.sockets = 4});
  const auto start = Clock::now();
  for (const auto& endpoint : {&one, &four}) {
    const Error error = error_of([&] {
      (*endpoint)->connect({one->address(), four->address()}, start + tcp_patience);
    });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("rank 0 wants 1"), HasSubstr("rank 1 wants 4")));
  }
  EXPECT_LT(Clock::now(), start + tcp_patience);
  for (const int sockets : {0, -1, most_sockets + 1})
    EXPECT_EQ(error_of([&] { tcp_endpoint({.rank = 0, .world = 2}, {.sockets = sockets}); }).kind(), ErrorKind::usage);
}

TEST(TcpAddress, TextAndBack) {
  const TcpAddress address{
      .host = "boot/42", .token = random_token(), .port = 65535, .sockets = 3, .ips = {"10.0.0.1", "fd00::1"}};
  const auto back = TcpAddress::parse(address.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->host, address.host);
  EXPECT_EQ(back->token, address.token);
  EXPECT_EQ(back->port, address.port);
  EXPECT_EQ(back->sockets, address.sockets);
  EXPECT_EQ(back->ips, address.ips);
  EXPECT_NE(random_token(), random_token());
}

TEST(TcpAddress, LoopbackIsForTheSameHostOnly) {
  const TcpAddress address{.host = "boot/42", .token = {}, .port = 1, .ips = {"10.0.0.1"}};
  const auto texts = [&](const std::string& host) {
    std::vector<std::string> result;
    for (const SocketAddress& candidate : address.candidates(host)) result.push_back(candidate.text());
    return result;
  };
  EXPECT_THAT(texts("boot/42"), testing::ElementsAre("127.0.0.1:1", "10.0.0.1:1"));
  EXPECT_THAT(texts("boot/43"), testing::ElementsAre("10.0.0.1:1"));
}

TEST(TcpAddress, OtherTextIsNoAddress) {
  const std::string good = TcpAddress{.host = "b", .token = {}, .port = 7, .ips = {"10.0.0.1"}}.text();
  ASSERT_TRUE(TcpAddress::parse(good));
  for (std::size_t length = 0; length < good.find("at="); ++length)
    EXPECT_FALSE(TcpAddress::parse(good.substr(0, length))) << length;
  for (const char* const bad :
       {"", "tcp/3 host=b", "tcp/3 host=b token=00 port=7 sockets=1 cpus= at=1.1.1.1",
        "tcp/2 host=b token=00000000000000000000000000000000 port=7 sockets=1 at=1.1.1.1",
        "tcp/3 host=b token=00000000000000000000000000000000 port=7 sockets=1 cpus=3-0 at=1.1.1.1",
        "tcp/3 host=b token=0000000000000000000000000000000g port=7 sockets=1 cpus=0-3 at=1.1.1.1",
        "tcp/3 host=b token=00000000000000000000000000000000 port=70000 sockets=1 cpus=0-3 at=1.1.1.1",
        "tcp/3 host=b token=00000000000000000000000000000000 port=7 sockets=0 cpus=0-3 at=1.1.1.1",
        "tcp/3 host=b token=00000000000000000000000000000000 port=7 sockets=17 cpus=0-3 at=1.1.1.1",
        "tcp/3 host=b token=00000000000000000000000000000000 port=7 sockets=1 cpus=0-3 at=1.1.1.1 x=y"})
    EXPECT_FALSE(TcpAddress::parse(bad)) << bad;
  const auto endpoint = tcp_endpoint({.rank = 0, .world = 2});
  const Error error = error_of([&] { endpoint->connect({endpoint->address(), "shm nonsense"}, Clock::now() + 1s); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_EQ(error.culprit(), 1);
  EXPECT_EQ(error_of([&] { endpoint->connect({endpoint->address()}, Clock::now() + 1s); }).kind(), ErrorKind::usage);
}

// Errors end in logs, which more people read than may join a job.
TEST(TcpAddress, AnErrorShowsTheKindOfAnAddressAndNotItsSecret) {
  const TcpAddress secret{.host = "b", .token = random_token(), .port = 7, .ips = {"10.0.0.1"}};
  const auto endpoint = tcp_endpoint({.rank = 0, .world = 2});
  const Error error = error_of([&] {
    endpoint->connect({endpoint->address(), secret.text() + " new=1"}, Clock::now() + 1s);
  });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 published 'tcp/3'"), testing::Not(HasSubstr(hex(secret.token)))));
}

// In a process of its own, whose limits are its own: 0 if `body` returns true.
int exit_code_of(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

bool connect_with_limit(rlim_t soft, rlim_t hard, std::chrono::seconds patience) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto endpoints = tcp_endpoints(4);
  const auto addresses = addresses_of(endpoints);
  std::atomic<int> failed = 0;
  on_threads(4, [&](Rank rank) {
    try {
      const auto transport = endpoints[static_cast<std::size_t>(rank)]->connect(addresses, Clock::now() + patience);
    } catch (const Error& error) {
      ++failed;
      if (error.kind() == ErrorKind::config && std::string(error.what()).find("ulimit -n") == std::string::npos)
        abort();
    }
  });
  return failed == 0;
}

TEST(TcpMeeting, TheSoftLimitOnDescriptorsIsRaisedAndTheHardOneIsAnError) {
  EXPECT_EQ(exit_code_of([] { return connect_with_limit(40, 4096, 25s); }), 0);
  EXPECT_EQ(exit_code_of([] { return !connect_with_limit(40, 40, 1s); }), 0);
}

}  // namespace
}  // namespace ranvier::transport
