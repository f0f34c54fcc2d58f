// Bytes between two ends, and what may happen to them there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::fuzz {

class BytesUnderWay {
 public:
  void change(std::size_t place, std::uint8_t by) {
    if (under_way_.empty() || by == 0) return;
    under_way_[place % under_way_.size()] ^= static_cast<std::byte>(by);
    touched_ = true;
  }
  void leave_out(std::size_t bytes) {
    bytes = std::min(bytes, under_way_.size());
    under_way_.erase(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(bytes));
    touched_ |= bytes > 0;
  }
  void insert(std::size_t place, std::span<const std::uint8_t> bytes) {
    const auto at = under_way_.begin() + static_cast<std::ptrdiff_t>(place % (under_way_.size() + 1));
    const auto text = std::as_bytes(bytes);
    under_way_.insert(at, text.begin(), text.end());
    touched_ |= !bytes.empty();
  }

 protected:
  std::vector<std::byte> under_way_;
  bool touched_ = false;
};

}  // namespace ranvier::fuzz
