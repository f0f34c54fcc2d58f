// Labelled images, as they stand in the files of MNIST, Fashion-MNIST and their relatives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ranvier::trainer {

struct LabelledImages {
  std::vector<std::uint8_t> pixels;  // count x rows x columns, 0 black … 255 white
  std::vector<std::uint8_t> labels;  // 0 … classes-1
  std::size_t count() const { return labels.size(); }
};

struct Dataset {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t classes = 0;
  LabelledImages train;
  LabelledImages test;
  std::string fingerprint;  // of all its bytes: tells whether a checkpoint saw the same data
};

// `name`: "fashion-mnist" (Debian's package dataset-fashion-mnist) or a folder with train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with ".gz". Throws
// Error{config} naming the file and what is wrong with it.
Dataset load_dataset(const std::string& name);

}  // namespace ranvier::trainer
