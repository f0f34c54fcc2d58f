#include "plan/import/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

namespace ranvier::plan {
namespace {

constexpr std::size_t piece = 1 << 20;

// Of zlib, so that it is given back however reading ends.
class Inflater {
 public:
  Inflater() {
    constexpr int gzip_alone = 16 + MAX_WBITS;
    ready_ = inflateInit2(&stream_, gzip_alone) == Z_OK;
  }
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ready() const { return ready_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_ = {};
  bool ready_ = false;
};

}  // namespace

bool is_gzipped(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string_view without_gz(std::string_view name) {
  constexpr std::string_view ending = ".gz";
  if (name.ends_with(ending)) name.remove_suffix(ending.size());
  return name;
}

Unpacked gunzip(std::string_view bytes, std::size_t most_bytes) {
  Inflater inflater;
  if (!inflater.ready()) return {.problem = "there is no memory left to unpack it"};
  z_stream& stream = inflater.stream();
  std::string text;
  std::size_t size = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    text.resize(size + piece);
    const std::size_t given = std::min<std::size_t>(bytes.size() - at, std::numeric_limits<uInt>::max());
    // zlib reads from what it is given, and does not write there.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + at));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + size);
    stream.avail_out = static_cast<uInt>(piece);
    const int state = inflate(&stream, Z_NO_FLUSH);
    at += given - stream.avail_in;
    size += piece - stream.avail_out;
    if (size > most_bytes) return {.problem = fmt::format("it unpacks to more than {} MiB", most_bytes >> 20)};
    if (state == Z_STREAM_END) {
      if (at == bytes.size()) {
        text.resize(size);
        return {.text = std::move(text)};
      }
      if (!is_gzipped(bytes.substr(at)) || inflateReset(&stream) != Z_OK)
        return {.problem = fmt::format("behind what is gzip-compressed it has {} bytes that are not, from byte {} on",
                                       bytes.size() - at, at)};
    } else if (state != Z_OK) {
      return {.problem = fmt::format("it is gzip-compressed and damaged at byte {}", at)};
    }
  }
  return {.problem =
              fmt::format("it is gzip-compressed and ends too early, after {} bytes; is it whole?", bytes.size())};
}

}  // namespace ranvier::plan
