// Files that were compressed with gzip (RFC 1952), as profilers leave traces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ranvier::plan {

// By its first bytes, whatever its name.
bool is_gzipped(std::string_view bytes);

// All members, one behind the other. As words for a sentence, why it cannot be unpacked: where it ends too early or is
// damaged, and where it would become larger than `most_bytes`.
struct Unpacked {
  std::string text = {};
  std::string problem = {};  // empty if it was unpacked
};
Unpacked gunzip(std::string_view bytes, std::size_t most_bytes);

// "step.0.et.gz" -> "step.0.et"
std::string_view without_gz(std::string_view name);

}  // namespace ranvier::plan
