// The .npy format: numpy/lib/format.py, versions 1 to 3. Magic, version, length of the header, a Python dictionary with
// 'descr', 'fortran_order' and 'shape', then the elements.
#include "codec/float_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/split.h"
#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"
#include "ranvier/text.h"

namespace ranvier::cli {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr std::string_view zip_magic = "PK\x03\x04";  // what numpy.savez and torch.save write

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view problem) {
  throw Error(ErrorKind::config, fmt::format("cannot compress {}: {}", path.string(), problem));
}

std::vector<float> floats_of(const std::filesystem::path& path, std::string_view content, std::size_t size) {
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
      if (std::isinf(values[i]) && std::isfinite(value))
        refuse(path, fmt::format("value {} is {:g}, beyond what a float of 32 bits has; scale the values", i, value));
    }
  }
  return values;
}

// The literal that begins there, as far as the comma or brace that ends it: a string with its quotes, a tuple with its
// parentheses. Empty where nothing ends it.
std::string_view literal_at(std::string_view header, std::size_t begin) {
  int open = 0;
  char string = 0;  // the quote of the one that this is inside of
  for (std::size_t i = begin; i < header.size(); ++i) {
    const char letter = header[i];
    if (string != 0) {
      if (letter == string) string = 0;
    } else if (letter == '\'' || letter == '"') {
      string = letter;
    } else if (letter == '(' || letter == '[' || letter == '{') {
      ++open;
    } else if (open == 0 && (letter == ',' || letter == '}')) {
      const auto literal = header.substr(begin, i - begin);
      return literal.substr(0, literal.find_last_not_of(' ') + 1);
    } else if (letter == ')' || letter == ']' || letter == '}') {
      --open;
    }
  }
  return {};
}

// That of a key of the header's own; fields of records may have the same name. Empty where there is none.
std::string_view literal_of(std::string_view header, std::string_view key) {
  int open = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const char letter = header[i];
    if (letter == '(' || letter == '[' || letter == '{') ++open;
    if (letter == ')' || letter == ']' || letter == '}') --open;
    if (letter != '\'' && letter != '"') continue;
    const auto end = std::min(header.find(letter, i + 1), header.size());
    const auto begin = header.find_first_not_of(" :", end + 1);
    if (open == 1 && header.substr(i + 1, end - i - 1) == key && begin != std::string_view::npos)
      return literal_at(header, begin);
    i = end;
  }
  return {};
}

// Bytes of an element; none for what is no little-endian float.
std::optional<std::size_t> element_bytes(std::string_view descr) {
  if (descr.size() != 5 || descr.front() != descr.back() || (descr[0] != '\'' && descr[0] != '"')) return std::nullopt;
  for (const auto& [name, size] : {std::pair("<f2", 2), {"<f4", 4}, {"<f8", 8}})
    if (descr.substr(1, 3) == name) return size;
  return std::nullopt;
}

// The product of a tuple of numbers, "(3, 4)" or "()"; none for anything else, and for what no file holds.
std::optional<std::size_t> elements_of(std::string_view shape) {
  if (shape.size() < 2 || shape.front() != '(' || shape.back() != ')') return std::nullopt;
  std::size_t elements = 1;
  for (std::string_view side : split(shape.substr(1, shape.size() - 2), ',')) {
    side.remove_prefix(std::min(side.find_first_not_of(' '), side.size()));
    side = side.substr(0, side.find_last_not_of(" L") + 1);  // Python 2 wrote 3L
    if (side.empty()) continue;                              // behind the comma of (3,), or in ()
    const auto size = parse_number<std::size_t>(side);
    if (!size || (*size > 0 && elements > (std::size_t{1} << 60) / *size)) return std::nullopt;
    elements *= *size;
  }
  return elements;
}

}  // namespace

std::vector<float> read_floats(const std::filesystem::path& path) {
  const WholeFile file = read_whole(path, std::numeric_limits<std::size_t>::max());
  if (!file.problem.empty()) refuse(path, fmt::format("it cannot be read ({}); name a file of floats", file.problem));
  const std::string_view content = file.text;
  if (content.empty()) refuse(path, "it is empty; give raw little-endian f32 or a .npy of floats");
  if (content.starts_with(zip_magic))
    refuse(path, "it is an archive, as numpy.savez and torch.save write; save one array of floats with numpy.save");
  if (!content.starts_with(npy_magic)) {
    if (content.size() % sizeof(float) != 0)
      refuse(path, fmt::format("its {} bytes are not a whole number of floats of 4 bytes; give raw little-endian f32 "
                               "or a .npy of floats",
                               content.size()));
    return floats_of(path, content, sizeof(float));
  }

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
  const std::string_view descr = literal_of(header, "descr"), shape = literal_of(header, "shape");
  if (descr.empty() || shape.empty()) refuse(path, damaged);
  const auto size = element_bytes(descr);
  if (!size)
    refuse(path, fmt::format("its elements are {} and no little-endian floats ('<f2', '<f4' or '<f8'); convert them "
                             "with astype('<f4')",
                             descr));
  const auto elements = elements_of(shape);
  if (!elements) refuse(path, damaged);
  if (*elements == 0) refuse(path, fmt::format("its shape {} has no element; give an array that has some", shape));
  if (values.size() != *elements * *size)
    refuse(path, fmt::format("its shape {} takes {} bytes, {} each, and {} stand behind the header; it was cut off or "
                             "damaged, so save it anew",
                             shape, *elements * *size, *size, values.size()));
  return floats_of(path, values, *size);
}

}  // namespace ranvier::cli
