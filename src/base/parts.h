// Several runs of bytes in one, each behind its length: how checkpoints keep what belongs to one rank.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier {

inline void append_part(std::vector<std::byte>& all, ConstBytes part) {
  const std::uint64_t length = part.size();
  const auto head = std::as_bytes(std::span(&length, 1));
  all.insert(all.end(), head.begin(), head.end());
  all.insert(all.end(), part.begin(), part.end());
}

// Takes the first part off `all`.
inline ConstBytes take_part(ConstBytes& all) {
  std::uint64_t length = 0;
  if (all.size() >= sizeof length) std::memcpy(&length, all.data(), sizeof length);
  if (all.size() < sizeof length || all.size() - sizeof length < length)
    throw Error(ErrorKind::config, "what the checkpoint kept of the replicas is cut short; use an earlier checkpoint");
  const ConstBytes part = all.subspan(sizeof length, length);
  all = all.subspan(sizeof length + length);
  return part;
}

inline void append_text(std::vector<std::byte>& all, std::string_view text) {
  append_part(all, std::as_bytes(std::span(text)));
}
inline std::string take_text(ConstBytes& all) {
  const ConstBytes part = take_part(all);
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

// The first part, of exactly `into`'s size, or nothing at all.
template <class Value>
void take_values(ConstBytes& all, std::span<Value> into) {
  const ConstBytes part = take_part(all);
  if (part.size() != into.size_bytes())
    throw Error(ErrorKind::config,
                "what the checkpoint kept of the replicas is of another run; resume with the --sync, "
                "--compress and --place that it was saved with");
  if (!part.empty()) std::memcpy(into.data(), part.data(), part.size());
}

}  // namespace ranvier
