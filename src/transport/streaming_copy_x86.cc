#include <emmintrin.h>

#include <cstdint>
#include <cstring>

#include "transport/bulk_copy.h"

namespace ranvier::transport {

void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t line = 64;  // whole lines only: the CPU joins the four stores and writes a line at once
  std::size_t ahead = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  if (ahead > bytes) ahead = bytes;
  std::memcpy(to, from, ahead);
  std::size_t done = ahead;
  for (; done + line <= bytes; done += line) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + done, from + done, bytes - done);
  _mm_sfence();  // streaming stores are not ordered by a release
}

}  // namespace ranvier::transport
