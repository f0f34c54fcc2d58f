// Chakra traces, byte by byte as the published schema has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ranvier::chakra_writer {

inline std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string number(int field, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
inline std::string block(int field, const std::string& content) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(content.size()) + content;
}
inline std::string message(const std::string& content) { return varint(content.size()) + content; }

inline constexpr int compute = 4;
inline constexpr int send = 5;
inline constexpr int collective = 7;
inline constexpr int int64_value = 9;
inline constexpr int bool_value = 27;

inline std::string attribute(const std::string& name, int field, std::uint64_t value) {
  return block(10, block(1, name) + number(field, value));
}
inline std::string node(std::uint64_t id, int type, std::uint64_t micros, const std::vector<std::uint64_t>& after,
                        const std::string& attributes = "") {
  std::string dependencies;
  for (const auto each : after) dependencies += varint(each);
  return message(number(1, id) + block(2, "n" + std::to_string(id)) + number(3, static_cast<std::uint64_t>(type)) +
                 block(5, dependencies) + number(7, micros) + attributes);
}
inline std::string all_reduce(std::uint64_t bytes) {
  return attribute("comm_type", int64_value, 0) + attribute("comm_size", int64_value, bytes);
}
inline const std::string head = message(block(1, "0.0.4"));

}  // namespace ranvier::chakra_writer
