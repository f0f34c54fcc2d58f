// Images and labels as they stand in the files of MNIST, Fashion-MNIST and their relatives.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/idx.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

namespace fs = std::filesystem;

// Below this two convolutions with pooling leave nothing.
constexpr std::size_t least_side = 10;

[[noreturn]] void refuse_file(const fs::path& file, std::string_view problem) {
  throw Error(ErrorKind::config,
              fmt::format("the data file {} {}; name another folder with --data", file.string(), problem));
}

fs::path find_file(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (const auto& candidate : {folder / name, folder / (name + ".gz")})
    if (fs::exists(candidate, ignored)) return candidate;
  throw Error(ErrorKind::config,
              fmt::format("the data file {} (or {}.gz) is missing; put it there or name another folder with --data",
                          (folder / name).string(), name));
}

struct Part {
  LabelledImages images;
  std::size_t rows = 0;
  std::size_t columns = 0;
  fs::path image_file;
  fs::path label_file;
};

Part load_part(const fs::path& folder, const std::string& prefix) {
  Part part;
  part.image_file = find_file(folder, prefix + "-images-idx3-ubyte");
  part.label_file = find_file(folder, prefix + "-labels-idx1-ubyte");
  auto images = read_idx(part.image_file, 3);
  auto labels = read_idx(part.label_file, 1);
  part.rows = images.sizes[1];
  part.columns = images.sizes[2];
  if (std::min(part.rows, part.columns) < least_side)
    refuse_file(part.image_file, fmt::format("has images of {} x {} pixels, smaller than {} x {}", part.rows,
                                             part.columns, least_side, least_side));
  if (images.sizes[0] != labels.sizes[0])
    refuse_file(part.label_file, fmt::format("has {} labels for the {} images of {}", labels.sizes[0], images.sizes[0],
                                             part.image_file.filename().string()));
  part.images = {std::move(images.values), std::move(labels.values)};
  return part;
}

// Classes are numbered from 0 without gaps: a label beyond the first gap is an error in the file and not a class.
std::size_t count_classes(const Part& train) {
  std::array<bool, 257> seen{};
  for (const auto label : train.images.labels) seen[label] = true;
  return static_cast<std::size_t>(std::find(seen.begin(), seen.end(), false) - seen.begin());
}

void check_labels(const Part& part, std::size_t classes) {
  const auto& labels = part.images.labels;
  const auto wrong = std::find_if(labels.begin(), labels.end(), [&](auto label) { return label >= classes; });
  if (wrong == labels.end()) return;
  if (classes == 0) refuse_file(part.label_file, "has no label 0, from which classes are counted");
  refuse_file(part.label_file, fmt::format("has label {} at item {}, out of the range 0 to {} of the training labels",
                                           *wrong, wrong - labels.begin(), classes - 1));
}

}  // namespace

Images read_idx_images(const fs::path& folder) {
  Part train = load_part(folder, "train");
  Part test = load_part(folder, "t10k");
  if (test.rows != train.rows || test.columns != train.columns)
    refuse_file(test.image_file, fmt::format("has images of {} x {} pixels and {} of {} x {}", test.rows, test.columns,
                                             train.image_file.filename().string(), train.rows, train.columns));
  const std::size_t classes = count_classes(train);
  check_labels(train, classes);
  check_labels(test, classes);
  return {.channels = 1,
          .rows = train.rows,
          .columns = train.columns,
          .classes = classes,
          .train = std::move(train.images),
          .test = std::move(test.images)};
}

}  // namespace ranvier::trainer
