// Bits in bytes, the least significant first, within bounds that are given: neither class touches a byte outside.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ranvier/types.h"

namespace ranvier {

static_assert(std::endian::native == std::endian::little, "codes are little-endian, and read and written as words");

class BitWriter {
 public:
  explicit BitWriter(Bytes out) : out_(out) {}

  // The low `count` (at most 56) bits of `bits`, of which the others are zero. What does not fit is dropped.
  void put(std::uint64_t bits, int count) {
    waiting_ |= bits << waiting_bits_;
    waiting_bits_ += count;
    const std::size_t whole = static_cast<std::size_t>(waiting_bits_) / 8;
    const std::size_t room = used_ < out_.size() ? out_.size() - used_ : 0;
    if (room >= 8)
      std::memcpy(out_.data() + used_, &waiting_, 8);
    else if (room >= whole)
      std::memcpy(out_.data() + used_, &waiting_, whole);
    used_ += whole;
    waiting_ = whole < 8 ? waiting_ >> (8 * whole) : 0;
    waiting_bits_ &= 7;
  }

  // Pads the last byte with zeros. The length in bytes, whether or not it fits.
  std::size_t finish() {
    if (waiting_bits_ > 0) put(0, 8 - waiting_bits_);
    return used_;
  }

  bool fits() const { return used_ <= out_.size(); }

 private:
  Bytes out_;
  std::size_t used_ = 0;
  std::uint64_t waiting_ = 0;
  int waiting_bits_ = 0;  // fewer than 8 between calls
};

class BitReader {
 public:
  explicit BitReader(ConstBytes code) : code_(code) {}

  // The next `count` (at most 56) bits; behind the end there are zeros.
  std::uint64_t take(int count) {
    const std::uint64_t bits = peek() & ((std::uint64_t{1} << count) - 1);
    skip(static_cast<std::size_t>(count));
    return bits;
  }
  // At least the next 56 bits, without moving.
  std::uint64_t peek() const {
    const std::size_t byte = at_ / 8;
    std::uint64_t word = 0;
    if (byte + 8 <= code_.size())
      std::memcpy(&word, code_.data() + byte, 8);
    else if (byte < code_.size())
      std::memcpy(&word, code_.data() + byte, code_.size() - byte);
    return word >> (at_ % 8);
  }
  void skip(std::size_t count) { at_ += count; }

  bool overrun() const { return at_ > 8 * code_.size(); }
  // Moves to the next whole byte; false if the bits passed over are not zeros.
  bool align() { return take(static_cast<int>(-at_ % 8)) == 0; }
  // The bytes behind the current one, once aligned and not overrun.
  ConstBytes rest() const { return code_.subspan(at_ / 8); }
  // Everything was read but zeros that fill the last byte.
  bool at_end() { return align() && at_ == 8 * code_.size(); }

 private:
  ConstBytes code_;
  std::size_t at_ = 0;  // in bits
};

}  // namespace ranvier
