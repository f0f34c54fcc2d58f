// The sentences that coders and codecs refuse with.
#pragma once

#include <cstddef>
#include <string_view>

namespace ranvier {

// Throws Error{usage} when `room` bytes are fewer than `needed`.
void require_room(std::string_view coder, std::size_t count, std::string_view things, std::size_t needed,
                  std::size_t room);
// The same for a codec of floats, by its spec.
void require_code_room(std::string_view spec, std::size_t values, std::size_t needed, std::size_t room);
// Throws Error{mismatch}.
[[noreturn]] void not_a_code(std::string_view coder, std::size_t bytes, std::size_t count, std::string_view things);

}  // namespace ranvier
