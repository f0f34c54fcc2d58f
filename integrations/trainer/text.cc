// Text for models that predict the next character. Characters are bytes, whatever the encoding, so bits per character
// are bits per byte.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "integrations/trainer/data_file.h"
#include "integrations/trainer/dataset.h"

namespace ranvier::trainer {
namespace {

// A tenth of it still tests with a few windows.
constexpr std::size_t least = 4096;

}  // namespace

Text read_text(const std::filesystem::path& path) {
  DataFile file(path);
  auto bytes = file.read_all();
  if (bytes.size() < least)
    file.refuse(fmt::format("has {} bytes, and fewer than {} are too few to learn from", bytes.size(), least));
  if (const auto zero = std::ranges::find(bytes, std::uint8_t{0}); zero != bytes.end())
    file.refuse(fmt::format("is not text: byte {} of it is zero", zero - bytes.begin()));

  std::array<bool, 256> occurs{};
  for (const auto byte : bytes) occurs[byte] = true;
  std::array<std::uint8_t, 256> numbers{};
  Text text;
  for (std::size_t byte = 0; byte < occurs.size(); ++byte)
    if (occurs[byte]) numbers[byte] = static_cast<std::uint8_t>(text.characters++);
  if (text.characters < 2) file.refuse("holds one character only, again and again");
  for (auto& byte : bytes) byte = numbers[byte];
  const auto split = bytes.end() - static_cast<std::ptrdiff_t>(bytes.size() / 10);
  text.train.assign(bytes.begin(), split);
  text.test.assign(split, bytes.end());
  return text;
}

}  // namespace ranvier::trainer
