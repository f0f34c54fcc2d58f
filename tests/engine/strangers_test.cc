// Whoever else connects to the ports of a job, in whatever language, before, while and after its ranks meet: the job
// goes on as if nobody had, and tells them nothing.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/secret.h"
#include "base/socket.h"
#include "ranvier/communicator.h"
#include "ranvier/store.h"
#include "support/free_ports.h"
#include "support/on_threads.h"
#include "transport/strangers.h"
#include "transport/tcp_hello.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using transport::Hello;

constexpr Rank own_ranks = 3;

std::string text_of(const Hello& hello) {
  std::string text(sizeof hello, '\0');
  std::memcpy(text.data(), &hello, sizeof hello);
  return text;
}

// What programs say when they have connected: those of other kinds, and those that nearly are of this job.
std::vector<std::string> words_of_strangers() {
  std::vector<std::string> all{"", "GET / HTTP/1.1\r\nHost: ranvier\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"};
  all.push_back("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"s);
  all.emplace_back(100'000, 'G');
  all.emplace_back(sizeof(Hello), '\0');
  // The head of a TLS record, of which nothing follows, and of one that nobody may send.
  all.push_back("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s);
  all.push_back("\x16\x03\x01\xff\xff\x01\x00\xff\xfb\x03\x03"s);
  all.back().append(5000, 'x');
  const Hello of_another_job{.token = transport::random_token(), .from = 1, .to = 0};
  all.push_back(text_of(of_another_job));
  Hello next_version = of_another_job;
  ++next_version.version;
  all.push_back(text_of(next_version));
  for (const std::size_t length : {1, 4, 20, 35}) all.push_back(text_of(of_another_job).substr(0, length));
  return all;
}

class Crowd {
 public:
  explicit Crowd(const PortRange& ports) : ports_(ports) {}

  // 200 connections to each port that say nothing.
  void come_in_numbers() {
    each_port([&](std::uint16_t port) {
      for (int i = 0; i < 200; ++i)
        if (Fd socket = support::stranger("127.0.0.1", port)) crowd_.push_back(std::move(socket));
    });
  }
  void talk() {
    each_port([&](std::uint16_t port) {
      for (const std::string& words : words_) {
        Fd socket = support::stranger("127.0.0.1", port);
        if (!socket) continue;
        send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        ++heard_;
        if (heard_ % 3 > 0) crowd_.push_back(std::move(socket));
      }
      const Fd datagrams(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const SocketAddress target = *parse_address("127.0.0.1", port);
      for (const std::string& words : words_)
        sendto(datagrams.get(), words.data(), std::min<std::size_t>(words.size(), 60'000), MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&target.storage), target.size);
      std::array<char, 64> answer{};
      EXPECT_LT(recv(datagrams.get(), answer.data(), answer.size(), MSG_DONTWAIT), 0);
    });
  }

  std::size_t heard() const { return heard_; }
  // What any of them was told.
  std::string answers() const {
    std::string all;
    for (const Fd& socket : crowd_) {
      std::array<char, 64> text{};
      const ssize_t got = recv(socket.get(), text.data(), text.size(), MSG_DONTWAIT);
      if (got > 0) all.append(text.data(), static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  template <class Act>
  void each_port(const Act& act) const {
    for (int port = ports_.first; port <= ports_.last; ++port) act(static_cast<std::uint16_t>(port));
  }

  const PortRange ports_;
  const std::vector<std::string> words_ = words_of_strangers();
  std::vector<Fd> crowd_;
  std::size_t heard_ = 0;
};

class Strangers : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, Strangers, testing::Values("tcp", "tls", "udp", "sealed", "grpc"),
                         [](const auto& way) { return std::string(way.param); });

TEST_P(Strangers, DisturbNoJobAndAreToldNothing) {
  const std::string way = GetParam();
  const PortRange ports = support::free_ports(own_ranks);
  const CommunicatorOptions options{.transport = way == "tls"      ? "tcp"
                                                 : way == "sealed" ? "udp"
                                                                   : way,
                                    .measure = false,
                                    .timeout = 40s,
                                    .join_timeout = 40s,
                                    .ports = ports,
                                    .security = {.encrypt_everywhere = way == "tls" || way == "sealed"}};
  Crowd crowd(ports);
  std::atomic<bool> job_ends = false;
  std::atomic<int> have_come = 0;
  const auto began = std::chrono::steady_clock::now();
  std::jthread strangers([&] {
    while (have_come == 0) std::this_thread::sleep_for(1ms);
    crowd.come_in_numbers();
    for (int round = 0; round < 6 && !job_ends; ++round) crowd.talk();
  });
  const auto store = memory_store();
  support::on_threads(own_ranks, [&](Rank rank) {
    ++have_come;
    if (rank == 1) std::this_thread::sleep_for(500ms);  // the others are at their doors meanwhile
    const auto comm = Communicator::connect(*store, rank, own_ranks, options);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> data(10'000, static_cast<float>(rank + 1));
      comm->all_reduce(data);
      EXPECT_THAT(data, testing::Each(6));
    }
    comm->barrier();
    job_ends = true;
  });
  strangers.join();
  EXPECT_GT(crowd.heard(), 0U) << "nobody was let in";
  EXPECT_EQ(crowd.answers(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
}

}  // namespace
}  // namespace ranvier
