// Where this program stands in ranvier's Python package: <packages>/ranvier/bin, with torch in <packages>/torch.
#pragma once

#include <string>
#include <string_view>

#include "flags.h"

namespace ranvier::cli {

bool is_in_package();
// The version of the torch whose libraries ranvier-train loads there; empty outside of the package.
std::string torch_beside_package();
// "2.13.0+cpu" -> "2.13", which is what binaries of one torch share.
std::string minor_version(std::string_view version);
// Throws Error{config} where ranvier-train was linked against another torch: it would call the wrong functions.
void demand_torch_of_trainer();

// Compiles the part of the package that belongs to one version of torch: `python -m ranvier rebuild`.
int run_rebuild(const Arguments&);

}  // namespace ranvier::cli
