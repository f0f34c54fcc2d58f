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
  for (const auto time : {0ms, 10ms, 150ms, 299ms}) EXPECT_FALSE(refused.at(time));
  EXPECT_TRUE(refused.at(300ms));
}

TEST(TcpPeer, HasNotEndedForOneWhoHadNoTimeToLookOftener) {
  Refusals refused({within});
  for (const auto time : {0ms, 5000ms, 5010ms}) EXPECT_FALSE(refused.at(time));
  EXPECT_TRUE(refused.at(5030ms));
}

TEST(TcpPeer, OfThisHostHasAddressesThatOthersReachToo) {
  Refusals refused({within, between});
  for (const auto time : {0ms, 10ms, 150ms})
    for (const std::size_t candidate : {0U, 1U}) EXPECT_FALSE(refused.at(time, candidate));
  EXPECT_FALSE(refused.at(300ms));
  EXPECT_TRUE(refused.at(300ms, 1));
}

TEST(TcpPeer, OnAnotherHostIsGivenLongerWhereItIsTheOneToDial) {
  Refusals knocking({between}), dialling({between}, false);
  for (const auto time : {0ms, 10ms, 150ms}) {
    EXPECT_FALSE(knocking.at(time));
    EXPECT_FALSE(dialling.at(time));
  }
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
  for (const auto time : {0s, 1s, 2s}) EXPECT_FALSE(refused.at(time));
  refused.peer().failed(0, "it accepted but did not answer the handshake");
  for (const auto time : {3s, 4s, 5s}) EXPECT_FALSE(refused.at(time));
  EXPECT_TRUE(refused.at(6s));
}

}  // namespace
}  // namespace ranvier::transport
