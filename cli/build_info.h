// What this build was made with. Empty where it was made without.
#pragma once

#include <string_view>

namespace ranvier::cli {

extern const std::string_view build_version;        // of ranvier
extern const std::string_view build_compiler;       // "GNU 12.2.0"
extern const std::string_view build_type;           // "Release"
extern const std::string_view build_torch_version;  // that the PyTorch backend was compiled for
extern const std::string_view build_python;         // path of the interpreter that has this torch

}  // namespace ranvier::cli
