// What can be learnt from: labelled images, and text as a sequence of characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace ranvier::trainer {

struct LabelledImages {
  std::vector<std::uint8_t> pixels;  // count x channels x rows x columns, 0 black … 255 white
  std::vector<std::uint8_t> labels;  // 0 … classes-1
  std::size_t count() const { return labels.size(); }
};

struct Images {
  std::size_t channels = 1;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t classes = 0;
  LabelledImages train;
  LabelledImages test;
};

// Its bytes, each as its number among those that occur, in ascending order. The last tenth is for testing.
struct Text {
  std::size_t characters = 0;  // different ones
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> test;
};

struct Dataset {
  std::variant<Images, Text> content;
  std::string fingerprint;  // of all its bytes: tells whether a checkpoint saw the same data
};

// So many characters of a text are seen at once, and are a sample.
inline constexpr std::int64_t window = 64;
std::size_t windows_in(const std::vector<std::uint8_t>& text);  // which do not overlap
// Images or windows to train with.
std::size_t training_samples(const Dataset&);

// `name`: "fashion-mnist" (Debian's package dataset-fashion-mnist); a folder with train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte; a folder with data_batch_*.bin and
// test_batch.bin (CIFAR-10's binary version); or a file of text. Each file plain or with ".gz". Throws Error{config}
// naming the file and what is wrong with it.
Dataset load_dataset(const std::string& name);

// One file each.
Images read_idx_images(const std::filesystem::path& folder);
Images read_cifar(const std::filesystem::path& folder);
bool is_cifar(const std::filesystem::path& folder);
Text read_text(const std::filesystem::path& file);

}  // namespace ranvier::trainer
