#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/slot_ring.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

TEST(Ring, HeadAndBodyArriveAsOneView) {
  auto world = loopback_world(2);
  EXPECT_EQ(world[0]->try_send(1, 0, bytes_of("head "), bytes_of("body")), 9u);
  EXPECT_EQ(text_of(world[1]->try_recv(0, 0, {})), "head body");
  world[1]->release(0, 0, 5);
  EXPECT_EQ(text_of(world[1]->try_recv(0, 0, {})), "body");
  world[1]->release(0, 0, 4);
  EXPECT_TRUE(world[1]->try_recv(0, 0, {}).empty());
}

}  // namespace
}  // namespace ranvier
