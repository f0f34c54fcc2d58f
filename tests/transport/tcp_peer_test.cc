// When refusals say that a rank has ended, and when they may be a firewall's or one address's.
#include "transport/tcp_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

const SocketAddress within = *parse_address("127.0.0.1", 4000);
const SocketAddress between = *parse_address("10.1.2.3", 4000);

class Refusals {
 public:
  explicit Refusals(std::vector<SocketAddress> candidates, bool knocks = true) : knocks_(knocks) {
    peer_.listens_at(std::move(candidates));
  }

  bool at(std::chrono::milliseconds time, std::size_t candidate = 0) {
    return peer_.refused(candidate, knocks_, TcpPeer::Time{} + time);
  }
  TcpPeer& peer() { return peer_; }

 private:
  TcpPeer peer_;
  bool knocks_;
};

TEST(TcpPeer, HasEndedWhenItsHostRefusesForAMoment) {
  Refusals refused({within});
  EXPECT_FALSE(refused.at(0ms));
  EXPECT_FALSE(refused.at(299ms));
  EXPECT_TRUE(refused.at(300ms));
}

TEST(TcpPeer, OfThisHostHasAddressesThatOthersReachToo) {
  Refusals refused({within, between});
  for (const std::size_t candidate : {0U, 1U}) EXPECT_FALSE(refused.at(0ms, candidate));
  EXPECT_TRUE(refused.at(300ms));
}

TEST(TcpPeer, OnAnotherHostIsGivenLongerWhereItIsTheOneToDial) {
  Refusals knocking({between}), dialling({between}, false);
  EXPECT_FALSE(knocking.at(0ms));
  EXPECT_FALSE(dialling.at(0ms));
  EXPECT_TRUE(dialling.at(300ms));
  EXPECT_FALSE(knocking.at(9999ms));
  EXPECT_TRUE(knocking.at(10'000ms));
}

TEST(TcpPeer, HasNotEndedWhileOneOfItsAddressesMayAnswer) {
  Refusals refused({between, between});
  for (int second = 0; second < 10; ++second) {
    EXPECT_FALSE(refused.at(second * 1s));
    refused.peer().failed(1, "no answer");
  }
  EXPECT_EQ(refused.peer().tried(), "10.1.2.3:4000: Connection refused, 10.1.2.3:4000: no answer");
}

TEST(TcpPeer, CountsRefusalsAnewAfterAnythingElse) {
  Refusals refused({within});
  EXPECT_FALSE(refused.at(0ms));
  refused.peer().failed(0, "it accepted but did not answer the handshake");
  EXPECT_FALSE(refused.at(1s));
  EXPECT_TRUE(refused.at(2s));
}

}  // namespace
}  // namespace ranvier::transport
