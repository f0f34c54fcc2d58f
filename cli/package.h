// Where this program stands in ranvier's Python package: <packages>/ranvier/bin, mostly with torch in <packages>/torch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "flags.h"

namespace ranvier::cli {

bool is_in_package();
// "2.13.0+cpu" -> "2.13", which is what binaries of one torch share.
std::string minor_version(std::string_view version);
// Where ranvier-train has to be told to look for the libraries of torch: where none is beside the package, the folder
// of those that find_python()'s torch has (in a venv with the system's packages, or pip install --user). Else empty.
// Throws Error{config} where there is none, or ranvier-train was linked against another: it would call the wrong
// functions.
std::filesystem::path torch_of_trainer();
[[noreturn]] void become_trainer(const std::filesystem::path& trainer, const Arguments&);

// Compiles the part of the package that belongs to one version of torch: `python -m ranvier rebuild`.
int run_rebuild(const Arguments&);

}  // namespace ranvier::cli
