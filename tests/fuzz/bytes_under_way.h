// Bytes between two ends, and what may happen to them there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::fuzz {

// What a fuzzer's next three bytes ask for.
struct Deed {
  std::uint8_t what, one, other;
  std::size_t number;  // of the last two
};
inline std::optional<Deed> next_deed(std::span<const std::uint8_t>& rest) {
  if (rest.size() < 3) return {};
  const Deed deed{rest[0], rest[1], rest[2], static_cast<std::size_t>(rest[1] << 8 | rest[2])};
  rest = rest.subspan(3);
  return deed;
}

class BytesUnderWay {
 public:
  // Of eight kinds of deeds the fifth to the seventh; takes from `rest` what is put in.
  void meddle(const Deed& deed, std::span<const std::uint8_t>& rest) {
    const std::size_t length = std::min<std::size_t>(deed.other, rest.size());
    switch (deed.what % 8) {
      case 4:
        return change(deed.number, deed.what);
      case 5:
        return leave_out(deed.number);
      case 6:
        insert(static_cast<std::size_t>(deed.one) * 64, rest.first(length));
        rest = rest.subspan(length);
    }
  }

 private:
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
