// The little of protobuf's encoding that vectors need (https://protobuf.dev/programming-guides/encoding), read and
// written in place: bytes of a protobuf message would be copied into a std::string, and gradients are large.
//
// Pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier::transport {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// A message that lies in pieces, from its beginning to its end. Throws Error{usage} where it is cut short or is none.
class WireReader {
 public:
  explicit WireReader(std::span<const ConstBytes> pieces) : pieces_(pieces) { drop_empty(); }

  bool at_end() const { return pieces_.empty(); }

  struct Field {
    std::uint32_t number;
    WireType type;
  };
  Field field() {
    const std::uint64_t key = varint();
    return {static_cast<std::uint32_t>(key >> 3), static_cast<WireType>(key & 7)};
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      std::byte byte{};
      copy(std::span(&byte, 1));
      value |= (std::to_integer<std::uint64_t>(byte) & 0x7F) << shift;
      if (std::to_integer<unsigned>(byte) < 0x80) return value;
    }
    throw bad();
  }
  double fixed64() {
    std::uint64_t bits = 0;
    copy(std::as_writable_bytes(std::span(&bits, 1)));
    return std::bit_cast<double>(bits);
  }

  void copy(Bytes to) {
    move(to.size(), [&](ConstBytes part) {
      std::ranges::copy(part, to.begin());
      to = to.subspan(part.size());
    });
  }
  void skip(std::uint64_t bytes) {
    move(bytes, [](ConstBytes) {});
  }
  // A field that nobody here knows.
  void skip(WireType type) {
    switch (type) {
      case WireType::varint:
        varint();
        return;
      case WireType::fixed64:
        return skip(8);
      case WireType::bytes:
        return skip(varint());
      case WireType::fixed32:
        return skip(4);
    }
    throw bad();
  }

 private:
  static Error bad() {
    return {ErrorKind::usage, "this is no message of ranvier_parameter_server.proto; use the stubs that it gives"};
  }

  template <class Take>
  void move(std::uint64_t bytes, const Take& take) {
    while (bytes > 0) {
      if (pieces_.empty()) throw bad();
      const ConstBytes part = pieces_[0].subspan(used_, std::min<std::uint64_t>(bytes, pieces_[0].size() - used_));
      take(part);
      bytes -= part.size();
      used_ += part.size();
      if (used_ < pieces_[0].size()) continue;
      pieces_ = pieces_.subspan(1);
      used_ = 0;
      drop_empty();
    }
  }
  void drop_empty() {
    while (!pieces_.empty() && pieces_[0].empty()) pieces_ = pieces_.subspan(1);
  }

  std::span<const ConstBytes> pieces_;
  std::size_t used_ = 0;  // of the first
};

// What stands before the bytes of a message's last field.
class WireHead {
 public:
  void add(std::uint32_t number, std::uint64_t value) {
    put(number << 3 | static_cast<std::uint32_t>(WireType::varint));
    put(value);
  }
  void add_bytes(std::uint32_t number, std::uint64_t count) {
    put(number << 3 | static_cast<std::uint32_t>(WireType::bytes));
    put(count);
  }
  ConstBytes bytes() const { return ConstBytes(bytes_).first(size_); }

 private:
  void put(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_[size_++] = static_cast<std::byte>(value | 0x80);
    bytes_[size_++] = static_cast<std::byte>(value);
  }
  std::array<std::byte, 64> bytes_{};
  std::size_t size_ = 0;
};

}  // namespace ranvier::transport
