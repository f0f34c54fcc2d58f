// Where temporary files go.
#pragma once

#include <filesystem>

namespace ranvier::cli {

// What TMPDIR names, else /tmp. Throws Error{config} where that is no folder.
std::filesystem::path temporary_folder();

}  // namespace ranvier::cli
