// The binary version of CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar.html: records of a label, 0 to 9, and 3 planes
// (red, green, blue) of 32 x 32 bytes, one behind the other. Training is all data_batch_*.bin, in the order of their
// names.
#include <fmt/format.h>

#include <algorithm>

#include "integrations/trainer/data_file.h"
#include "integrations/trainer/dataset.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t side = 32;
constexpr std::size_t channels = 3;
constexpr std::size_t classes = 10;
constexpr std::size_t image_bytes = channels * side * side;
constexpr std::size_t record_bytes = 1 + image_bytes;

bool is_training_file(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("data_batch_") && (name.ends_with(".bin") || name.ends_with(".bin.gz"));
}

std::vector<fs::path> training_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_training_file(entry.path())) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void append_records(const fs::path& path, LabelledImages& images) {
  DataFile file(path);
  const auto bytes = file.read_all();
  if (bytes.empty() || bytes.size() % record_bytes != 0)
    file.refuse(
        fmt::format("has {} bytes, which is no number of whole records of {}: it is truncated, or no binary "
                    "file of CIFAR-10",
                    bytes.size(), record_bytes));
  for (std::size_t at = 0; at < bytes.size(); at += record_bytes) {
    if (bytes[at] >= classes)
      file.refuse(fmt::format("has label {} at record {}, out of the range 0 to {}", bytes[at], at / record_bytes,
                              classes - 1));
    images.labels.push_back(bytes[at]);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    images.pixels.insert(images.pixels.end(), first, first + image_bytes);
  }
}

}  // namespace

bool is_cifar(const fs::path& folder) { return !training_files(folder).empty(); }

Images read_cifar(const fs::path& folder) {
  Images data{.channels = channels, .rows = side, .columns = side, .classes = classes, .train = {}, .test = {}};
  for (const auto& file : training_files(folder)) append_records(file, data.train);
  std::error_code ignored;
  const fs::path plain = folder / "test_batch.bin";
  const fs::path compressed = folder / "test_batch.bin.gz";
  append_records(!fs::exists(plain, ignored) && fs::exists(compressed, ignored) ? compressed : plain, data.test);
  return data;
}

}  // namespace ranvier::trainer
