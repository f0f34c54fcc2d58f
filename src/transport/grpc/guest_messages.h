// The messages of proto/ranvier_parameter_server.proto that guests send.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "transport/grpc/wire.h"

namespace ranvier::transport {

static_assert(std::endian::native == std::endian::little, "values travel as they lie in memory");

inline Rank guest_of(std::uint64_t number, Rank guests) {
  if (number >= static_cast<std::uint64_t>(guests))
    throw Error(ErrorKind::usage, fmt::format("guest {} is not from 0 to {}", number, guests - 1));
  return static_cast<Rank>(number);
}

// Whose request this is.
inline Rank read_pull(std::span<const ConstBytes> message, Rank guests) {
  std::uint64_t guest = 0;
  for (WireReader reader(message); !reader.at_end();) {
    const auto [number, type] = reader.field();
    if (number == 1 && type == WireType::varint)
      guest = reader.varint();
    else
      reader.skip(type);
  }
  return guest_of(guest, guests);
}

// A push as its messages come.
class GuestPush {
 public:
  GuestPush(std::size_t parameters, Rank guests) : parameters_(parameters), guests_(guests) {}

  // Throws Error{usage} for what cannot be meant.
  void take(std::span<const ConstBytes> message) {
    std::uint64_t guest = 0, first = 0, bytes = 0;
    std::optional<WireReader> values;
    GuestCalls::Push push;
    for (WireReader reader(message); !reader.at_end();) {
      const auto [number, type] = reader.field();
      if (number == 1 && type == WireType::varint) {
        guest = reader.varint();
      } else if (number == 2 && type == WireType::varint) {
        push.number = reader.varint();
      } else if (number == 3 && type == WireType::fixed64) {
        push.rate = reader.fixed64();
      } else if (number == 4 && type == WireType::fixed64) {
        push.share = reader.fixed64();
      } else if (number == 5 && type == WireType::varint) {
        first = reader.varint();
      } else if (number == 6 && type == WireType::bytes) {
        bytes = reader.varint();
        values = reader;
        reader.skip(bytes);
      } else {
        reader.skip(type);
      }
    }
    if (!has_begun_) begin(guest_of(guest, guests_), push);
    const std::size_t given = gradient_.size();
    if (first != given || bytes % sizeof(float) != 0 || bytes / sizeof(float) > parameters_ - given)
      throw Error(ErrorKind::usage,
                  fmt::format("{} B of values from number {} on are not what follows {} of the {} values of a gradient",
                              bytes, first, given, parameters_));
    if (values) values->copy(std::as_writable_bytes(more(bytes / sizeof(float))));
  }

  // Once all its messages have come: that it is whole, and that a step along it stays finite.
  void demand_all() const {
    if (!has_begun_ || gradient_.size() < parameters_)
      throw Error(ErrorKind::usage, fmt::format("the push ended behind {} of the {} values of a gradient",
                                                gradient_.size(), parameters_));
    float largest = 0;
    for (const float value : gradient_) {
      if (!std::isfinite(value))
        throw Error(ErrorKind::usage, "the gradient has a value that is infinite or not a number");
      largest = std::max(largest, std::abs(value));
    }
    if (!std::isfinite(static_cast<float>(push_.rate) * largest))
      throw Error(ErrorKind::usage,
                  fmt::format("rate {} times {}, the gradient's largest value, is beyond what a float "
                              "holds; push with a lower rate",
                              push_.rate, largest));
  }

  // Whose, once a message has been taken.
  Rank guest() const { return guest_; }
  const GuestCalls::Push& push() const { return push_; }
  std::span<const float> gradient() const { return gradient_; }
  // Gives the gradient's memory back.
  void forget() { gradient_ = {}; }

 private:
  void begin(Rank guest, const GuestCalls::Push& push) {
    if (push.number == 0 || !(push.rate > 0 && push.rate <= highest_rate) || !(push.share > 0 && push.share <= 1))
      throw Error(
          ErrorKind::usage,
          fmt::format("push {} with rate {} and share {}: number a guest's pushes from 1, with a rate above 0 and up "
                      "to {:.1e} and a share above 0 and up to 1",
                      push.number, push.rate, push.share, highest_rate));
    has_begun_ = true;
    guest_ = guest;
    push_ = push;
  }

  // Grows with what comes: one who sends nothing takes no memory.
  std::span<float> more(std::size_t count) {
    const std::size_t given = gradient_.size(), needed = given + count;
    if (needed > gradient_.capacity()) gradient_.reserve(std::min(parameters_, std::max(needed, 2 * given)));
    gradient_.resize(needed);
    return std::span(gradient_).subspan(given);
  }

  static constexpr double highest_rate = std::numeric_limits<float>::max();  // servers step by floats

  const std::size_t parameters_;
  const Rank guests_;
  bool has_begun_ = false;
  Rank guest_ = 0;
  GuestCalls::Push push_;
  std::vector<float> gradient_;  // as much as has come
};

}  // namespace ranvier::transport
