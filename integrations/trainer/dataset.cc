#include "integrations/trainer/dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include "integrations/trainer/default_data.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;

fs::path place_of(const std::string& name) {
  const bool is_packaged = name == default_data;
  const fs::path place = is_packaged ? fs::path(default_data_folder) : fs::path(name);
  std::error_code ignored;
  if (fs::exists(place, ignored)) return place;
  if (is_packaged)
    throw Error(ErrorKind::config,
                fmt::format("{} is not there; install it with 'apt-get install {}', or name other data with --data",
                            default_data_folder, default_data_package));
  throw Error(ErrorKind::config, fmt::format("there is no folder or file '{}' to read data from; --data takes '{}', a "
                                             "folder of IDX or CIFAR-10 files, or a file of text",
                                             name, default_data));
}

uLong checksum(uLong sum, const std::vector<std::uint8_t>& bytes) { return crc32_z(sum, bytes.data(), bytes.size()); }
uLong checksum(const Text& text) { return checksum(checksum(0, text.train), text.test); }
uLong checksum(const Images& images) {
  uLong sum = 0;
  for (const auto* part : {&images.train, &images.test}) sum = checksum(checksum(sum, part->pixels), part->labels);
  return sum;
}

}  // namespace

Dataset load_dataset(const std::string& name) {
  const fs::path place = place_of(name);
  Dataset data;
  if (!fs::is_directory(place))
    data.content = read_text(place);
  else if (is_cifar(place))
    data.content = read_cifar(place);
  else
    data.content = read_idx_images(place);
  data.fingerprint = fmt::format("{:08x}", std::visit([](const auto& each) { return checksum(each); }, data.content));
  return data;
}

// The last one needs a character behind it.
std::size_t windows_in(const std::vector<std::uint8_t>& text) {
  return (text.size() - 1) / static_cast<std::size_t>(window);
}

std::size_t training_samples(const Dataset& data) {
  const auto* images = std::get_if<Images>(&data.content);
  return images != nullptr ? images->train.count() : windows_in(std::get<Text>(data.content).train);
}

}  // namespace ranvier::trainer
