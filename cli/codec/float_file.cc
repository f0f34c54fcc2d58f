// The .npy format: numpy/lib/format.py, versions 1 to 3. Magic, version, length of the header, a Python dictionary with
// 'descr', 'fortran_order' and 'shape', then the elements.
#include "codec/float_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"

namespace ranvier::cli {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view problem) {
  throw Error(ErrorKind::config, fmt::format("cannot compress {}: {}", path.string(), problem));
}

std::vector<float> floats_of(std::string_view content, std::size_t size, const std::filesystem::path& path) {
  if (content.size() % size != 0 || content.empty())
    refuse(path, fmt::format("its {} bytes are not a whole number of floats of {} bytes; give raw little-endian f32 or "
                             "a .npy of floats",
                             content.size(), size));
  std::vector<float> values(content.size() / size);
  if (size == 2) {
    kernel::from_f16(content.data(), values.data(), values.size());
  } else if (size == 4) {
    std::memcpy(values.data(), content.data(), content.size());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      double value;
      std::memcpy(&value, content.data() + 8 * i, 8);
      values[i] = static_cast<float>(value);
    }
  }
  return values;
}

}  // namespace

std::vector<float> read_floats(const std::filesystem::path& path) {
  const WholeFile file = read_whole(path, std::numeric_limits<std::size_t>::max());
  if (!file.problem.empty()) refuse(path, fmt::format("it cannot be read ({}); name a file of floats", file.problem));
  const std::string_view content = file.text;
  if (!content.starts_with(npy_magic)) return floats_of(content, sizeof(float), path);

  constexpr std::string_view damaged = "it begins like a .npy but its header is damaged; save it anew";
  const std::size_t length_at = npy_magic.size() + 2;
  if (content.size() < length_at + 4) refuse(path, damaged);
  const std::size_t length_bytes = content[npy_magic.size()] == 1 ? 2 : 4;
  std::uint32_t length = 0;
  std::memcpy(&length, content.data() + length_at, length_bytes);
  const std::size_t begin = length_at + length_bytes;
  if (length > content.size() - begin) refuse(path, damaged);
  const std::string_view header = content.substr(begin, length);
  const std::string_view values = content.substr(begin + length);
  for (const std::size_t size : {2, 4, 8})
    if (header.find(fmt::format("'descr': '<f{}'", size)) != std::string_view::npos)
      return floats_of(values, size, path);
  refuse(path, "its elements are no little-endian floats (f2, f4 or f8); convert them with astype('<f4')");
}

}  // namespace ranvier::cli
