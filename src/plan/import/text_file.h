// Small text files, and where in them something stands.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ranvier::plan {

// Unpacked, where it was compressed with gzip. Throws Error{config} where the file cannot be read, is no regular one,
// is larger than that or unpacks to more.
std::string read_text(const std::filesystem::path&, std::size_t most_bytes = std::size_t{64} << 20);

// What an Error quotes of a file: its first letters on one line, '?' for those of ASCII that no terminal shows. What is
// no UTF-8 stays: Error writes it out.
std::string quotable(std::string_view text, std::size_t most_letters = 40);
inline constexpr std::size_t most_letters_of_a_flag = 200;  // of what somebody has typed

struct TextPlace {
  std::size_t line;
  std::size_t column;
};
// Both from 1.
TextPlace place_of(std::string_view text, std::size_t offset);

// Of one collective in a file: more is a slip of the pen, and no longer a number that elements are counted in.
inline constexpr double most_collective_bytes = 1e15;

}  // namespace ranvier::plan
