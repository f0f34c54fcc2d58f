// Files of floats: what numpy.save writes, or the bare floats one behind the other.
#pragma once

#include <filesystem>
#include <vector>

namespace ranvier::cli {

// .npy of f2, f4 or f8 in little endian, whatever its shape; any other file as raw little-endian f32. Throws
// Error{config} for a file that is neither, is empty, is shorter or longer than its shape says or cannot be read.
std::vector<float> read_floats(const std::filesystem::path& path);

}  // namespace ranvier::cli
