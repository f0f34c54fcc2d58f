#include "integrations/trainer/idx.h"

#include <fmt/format.h>

#include <array>

#include "integrations/trainer/data_file.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

constexpr std::uint8_t unsigned_bytes = 0x08;             // the type code of IDX
constexpr std::size_t most_bytes = std::size_t{4} << 30;  // of a header that is to be believed
constexpr std::size_t values_at_once = 1 << 20;  // read at once: memory grows with the file, not with its header

std::size_t big_endian(const std::uint8_t* bytes) {
  return std::size_t{bytes[0]} << 24 | std::size_t{bytes[1]} << 16 | std::size_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, std::size_t dimensions) {
  DataFile input(path);
  std::array<std::uint8_t, 4> magic{};
  if (input.read(magic.data(), magic.size()) != magic.size() || magic[0] != 0 || magic[1] != 0)
    input.refuse("is not an IDX file");
  if (magic[2] != unsigned_bytes) input.refuse(fmt::format("holds IDX type {:#04x} and not unsigned bytes", magic[2]));
  if (magic[3] != dimensions) input.refuse(fmt::format("has {} dimensions and not {}", magic[3], dimensions));

  IdxArray array;
  std::size_t total = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::array<std::uint8_t, 4> size{};
    if (input.read(size.data(), size.size()) != size.size()) input.refuse("ends within its header");
    array.sizes.push_back(big_endian(size.data()));
    if (array.sizes.back() == 0) input.refuse("holds nothing: one of its dimensions is 0");
    if (array.sizes.back() > most_bytes / total)
      input.refuse("announces more than 4 GiB, which its header cannot mean");
    total *= array.sizes.back();
  }

  while (array.values.size() < total) {
    const std::size_t before = array.values.size();
    array.values.resize(std::min(before + values_at_once, total));
    const std::size_t got = input.read(array.values.data() + before, array.values.size() - before);
    if (got < array.values.size() - before)
      input.refuse(fmt::format("is truncated: {} bytes of values are announced and {} are there", total, before + got));
  }
  std::uint8_t extra = 0;
  if (input.read(&extra, 1) != 0) input.refuse(fmt::format("has bytes behind the {} values that it announces", total));
  if (input.cut_off()) input.refuse("is truncated: its compressed stream has no end");
  return array;
}

}  // namespace ranvier::trainer
