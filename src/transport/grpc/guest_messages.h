// The messages of proto/ranvier_parameter_server.proto that guests send.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/parameter_guests.h"
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
  GuestPush(std::size_t parameters, Rank guests) : guests_(guests), gradient_(parameters) {}

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
    if (first != given_ || bytes % sizeof(float) != 0 || bytes / sizeof(float) > gradient_.size() - given_)
      throw Error(ErrorKind::usage,
                  fmt::format("{} B of values from number {} on are not what follows {} of the {} values of a gradient",
                              bytes, first, given_, gradient_.size()));
    const auto to = std::span(gradient_).subspan(given_, bytes / sizeof(float));
    if (values) values->copy(std::as_writable_bytes(to));
    given_ += to.size();
  }

  // Once all its messages have come.
  void demand_all() const {
    if (!has_begun_ || given_ < gradient_.size())
      throw Error(ErrorKind::usage,
                  fmt::format("the push ended behind {} of the {} values of a gradient", given_, gradient_.size()));
  }

  Rank guest() const { return guest_; }
  const GuestCalls::Push& push() const { return push_; }
  std::span<const float> gradient() const { return gradient_; }

 private:
  void begin(Rank guest, const GuestCalls::Push& push) {
    if (push.number == 0 || !(push.rate > 0 && std::isfinite(push.rate)) || !(push.share > 0 && push.share <= 1))
      throw Error(ErrorKind::usage,
                  fmt::format("push {} with rate {} and share {}: number a guest's pushes from 1, with a finite rate "
                              "above 0 and a share above 0 and up to 1",
                              push.number, push.rate, push.share));
    has_begun_ = true;
    guest_ = guest;
    push_ = push;
  }

  const Rank guests_;
  bool has_begun_ = false;
  Rank guest_ = 0;
  GuestCalls::Push push_;
  std::vector<float> gradient_;
  std::size_t given_ = 0;
};

}  // namespace ranvier::transport
