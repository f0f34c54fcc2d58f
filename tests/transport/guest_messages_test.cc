// What guests of the parameter servers send, as protobuf would write it: however it is cut into pieces it is read, and
// what makes no sense is refused with a sentence.
#include "transport/grpc/guest_messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace ranvier::transport {
namespace {

constexpr Rank guests = 64;
using Message = std::vector<std::byte>;

void add(Message& message, std::uint64_t varint) {
  for (; varint >= 0x80; varint >>= 7) message.push_back(static_cast<std::byte>(varint | 0x80));
  message.push_back(static_cast<std::byte>(varint));
}
void add_number(Message& message, std::uint32_t field, std::uint64_t value) {
  add(message, field << 3);
  add(message, value);
}
void add_double(Message& message, std::uint32_t field, double value) {
  add(message, field << 3 | 1);
  const auto bytes = std::as_bytes(std::span(&value, 1));
  message.insert(message.end(), bytes.begin(), bytes.end());
}
void add_values(Message& message, std::uint32_t field, std::span<const float> values) {
  add(message, field << 3 | 2);
  add(message, values.size_bytes());
  const auto bytes = std::as_bytes(values);
  message.insert(message.end(), bytes.begin(), bytes.end());
}

const std::vector<float> three{1.5F, -2, 300};

Message gradient(std::uint64_t guest = 7, std::uint64_t number = 1, double rate = 0.1, double share = 0.5,
                 std::uint64_t first = 0, std::span<const float> values = three) {
  Message message;
  add_number(message, 1, guest);
  add_number(message, 2, number);
  add_double(message, 3, rate);
  add_double(message, 4, share);
  if (first > 0) add_number(message, 5, first);
  add_values(message, 6, values);
  return message;
}

void take(GuestPush& push, const Message& message) {
  const std::vector<ConstBytes> pieces{message};
  push.take(pieces);
}

TEST(GuestMessages, AreReadHoweverTheyAreCut) {
  const Message whole = gradient();
  for (std::size_t a = 0; a <= whole.size(); ++a)
    for (std::size_t b = a; b <= whole.size(); ++b) {
      const std::vector<ConstBytes> pieces{ConstBytes(whole).first(a), ConstBytes(whole).subspan(a, b - a),
                                           ConstBytes(whole).subspan(b)};
      GuestPush push(three.size(), guests);
      push.take(pieces);
      push.demand_all();
      EXPECT_EQ(push.guest(), 7);
      EXPECT_EQ(push.push().number, 1U);
      EXPECT_EQ(push.push().rate, 0.1);
      EXPECT_EQ(push.push().share, 0.5);
      EXPECT_TRUE(std::ranges::equal(push.gradient(), three));
    }
}

TEST(GuestMessages, MayBeSeveralAndMayHaveFieldsThatNobodyKnows) {
  GuestPush push(5, guests);
  Message first = gradient();
  add_number(first, 99, 1);
  add_double(first, 98, 2);
  add_values(first, 97, three);
  take(push, first);
  EXPECT_THROW(push.demand_all(), Error);
  Message second;
  add_number(second, 5, 3);
  add_values(second, 6, std::span(three).first(2));
  take(push, second);
  push.demand_all();
  EXPECT_EQ(push.gradient()[3], three[0]);
  EXPECT_EQ(push.gradient()[4], three[1]);
}

TEST(GuestMessages, CutShortAreRefused) {
  const Message whole = gradient();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    GuestPush push(three.size(), guests);
    const std::vector<ConstBytes> pieces{ConstBytes(whole).first(size)};
    EXPECT_THROW(
        {
          push.take(pieces);
          push.demand_all();
        },
        Error)
        << size;
  }
}

TEST(GuestMessages, ThatMakeNoSenseAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Message& message :
       {gradient(64), gradient(~std::uint64_t{0}), gradient(0, 0), gradient(0, 1, 0), gradient(0, 1, nan),
        gradient(0, 1, -1), gradient(0, 1, 1, 0), gradient(0, 1, 1, 1.5), gradient(0, 1, 1, 1, 1),
        gradient(0, 1, 1, 1, ~std::uint64_t{0}), gradient(0, 1, 1, 1, 0, std::vector<float>(4))}) {
    GuestPush push(three.size(), guests);
    EXPECT_THROW(take(push, message), Error);
  }
}

// Servers step by floats: what is finite as a double may be infinite there.
TEST(GuestMessages, ThatWouldMakeAStepInfiniteAreRefused) {
  const std::vector<float> one{1}, huge{-3e38F};
  const auto refused = [](double rate, std::span<const float> values) {
    GuestPush push(1, guests);
    try {
      take(push, gradient(0, 1, rate, 1, 0, values));
      push.demand_all();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(3e38, one));
  EXPECT_TRUE(refused(1e39, one));
  EXPECT_FALSE(refused(1, huge));
  EXPECT_TRUE(refused(2, huge));
  EXPECT_TRUE(refused(1, std::vector<float>{std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(refused(1, std::vector<float>{std::numeric_limits<float>::quiet_NaN()}));
}

TEST(GuestMessages, TakeMemoryForWhatHasComeAlone) {
  GuestPush push(std::size_t{1} << 45, guests);  // more than any machine has
  take(push, gradient());
  EXPECT_EQ(push.gradient().size(), three.size());
  EXPECT_THROW(push.demand_all(), Error);
}

TEST(GuestMessages, OfAnythingNeverReachBeyondTheGradient) {
  std::mt19937 random(1);
  for (int attempt = 0; attempt < 20'000; ++attempt) {
    Message message = gradient();
    for (int changes = 0; changes < 4; ++changes) message[random() % message.size()] = static_cast<std::byte>(random());
    GuestPush push(three.size(), guests);
    try {
      take(push, message);
      push.demand_all();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

TEST(GuestMessages, OfAPullNameTheGuest) {
  Message message;
  add_number(message, 1, 63);
  const auto read = [](const Message& bytes) {
    const std::vector<ConstBytes> pieces{bytes};
    return read_pull(pieces, guests);
  };
  EXPECT_EQ(read(message), 63);
  EXPECT_EQ(read({}), 0) << "protobuf leaves out zeros";
  message.clear();
  add_number(message, 1, 64);
  EXPECT_THROW(read(message), Error);
}

}  // namespace
}  // namespace ranvier::transport
