#include "base/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "ranvier/error.h"
#include "support/link_local.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

std::string congestion_control(const Fd& socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0) << std::strerror(errno);
  return name.data();
}

// Means something where bbr is the default ('sysctl net.ipv4.tcp_congestion_control'): its pacing would stay. Between
// hosts the default has to come back: see ranks_test.py.
TEST(Socket, IsMadeWithoutBbrAndUsesRenoWithinAHost) {
  const Fd listener = listen_on("127.0.0.1", {}, {});
  EXPECT_NE(congestion_control(listener), "bbr");
  const Fd near = start_connect(local_address(listener), {});
  ASSERT_TRUE(near);
  EXPECT_NE(congestion_control(near), "bbr") << "before the connection stands";
  pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&waiting, 1, 5000), 1);
  const Fd far = accept_next(listener);
  for (const Fd* const end : {&near, &far}) {
    EXPECT_TRUE(is_local(*end));
    tune_connection(*end);
    EXPECT_EQ(congestion_control(*end), "reno");
  }
}

// What a firewall lets through is often a port a rank: for its groups as well, and for the job that starts again.
TEST(Socket, ListensAgainOnAPortWhoseConnectionsLinger) {
  const std::uint16_t port = local_address(listen_on("127.0.0.1", {}, {})).port();
  const PortRange only{port, port};
  for (const std::string ip : {"127.0.0.1", ""}) {
    Fd listener = listen_on(ip, only, {});
    const Fd caller = start_connect(*parse_address("127.0.0.1", port), {});
    pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&waiting, 1, 5000), 1);
    Fd connection = accept_next(listener);
    ASSERT_TRUE(connection);
    EXPECT_THAT(support::refusal([&] { listen_on(ip, only, {}); }, ErrorKind::config),
                ::testing::HasSubstr("one for each rank of this host"));
    listener.reset();
    EXPECT_EQ(local_address(listen_on(ip, only, {})).port(), port) << "beside a connection that lives";
    connection.reset();  // who closes first keeps the port in TIME_WAIT
    EXPECT_EQ(local_address(listen_on(ip, only, {})).port(), port) << "after it";
  }
}

TEST(Socket, KnowsTheAddressesOfItsHost) {
  EXPECT_TRUE(is_own(*parse_address("127.0.0.1", 1)));
  EXPECT_TRUE(is_own(*parse_address("127.0.0.77", 1)));
  for (const std::string& each : host_addresses()) EXPECT_TRUE(is_own(*parse_address(each, 1))) << each;
  EXPECT_FALSE(is_own(*parse_address("198.51.100.1", 1))) << "nobody has it (RFC 5737)";
}

TEST(Socket, KnowsTheAddressOfAnInterface) {
  EXPECT_EQ(address_of("lo"), "127.0.0.1");
  for (const char* each : {"", "eth99", "192.0.2.7", "::1"}) EXPECT_EQ(address_of(each), each);
}

TEST(Socket, KnowsItsHostsIpv4AddressesAsSocketsOfBothFamiliesShowThem) {
  EXPECT_TRUE(is_own(*parse_address("::ffff:127.0.0.1", 1)));
  for (const std::string& each : host_addresses()) {
    if (each.find(':') != std::string::npos) continue;
    EXPECT_TRUE(is_own(*parse_address("::ffff:" + each, 1))) << each;
  }
  EXPECT_FALSE(is_own(*parse_address("::ffff:198.51.100.1", 1)));
}

TEST(Socket, KnowsItsHostsLinkLocalAddress) {
  const auto own = support::link_local_address();
  if (!own) GTEST_SKIP() << "no interface has one";
  EXPECT_TRUE(is_own(*own)) << own->text();
  SocketAddress other = *own;
  reinterpret_cast<sockaddr_in6&>(other.storage).sin6_addr.s6_addr[15] ^= 1;
  EXPECT_FALSE(is_own(other)) << other.text();
}

// Such as by a data loader's worker, which may live on when the process that it came from has been killed.
TEST(Socket, EndsWithItsProcessThoughAnotherWasForkedOff) {
  const Fd listener = listen_on("127.0.0.1", {}, {});
  Fd dialled = start_connect(local_address(listener), {});
  Fd accepted;
  for (int tries = 0; tries < 1000 && !accepted; ++tries, usleep(1000)) accepted = accept_next(listener);
  ASSERT_TRUE(accepted);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) pause();
  dialled.reset();
  pollfd end{accepted.get(), POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 10'000), 1) << "the other side does not see the end";
  char nothing = 0;
  EXPECT_EQ(recv(accepted.get(), &nothing, 1, 0), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace ranvier
