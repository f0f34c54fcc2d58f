// The IDX format of MNIST and its relatives, plain or gzip: http://yann.lecun.com/exdb/mnist/ (section "file formats").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ranvier::trainer {

// An array of bytes of any number of dimensions, in C order.
struct IdxArray {
  std::vector<std::size_t> sizes;
  std::vector<std::uint8_t> values;
};

// Throws Error{config} naming the file for anything but a whole IDX file of unsigned bytes with `dimensions`
// dimensions.
IdxArray read_idx(const std::filesystem::path& path, std::size_t dimensions);

}  // namespace ranvier::trainer
