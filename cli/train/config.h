// Settings from a file: the lowest of the three places that they come from.
#pragma once

#include <filesystem>

#include "flags.h"

namespace ranvier::train {

// Gives the options of `app` that neither a flag nor a variable has set what the TOML file says; call it after parsing.
// Throws Error{config} for a file that cannot be read, Error{usage} for keys that are no option, naming the nearest.
void apply_config(CLI::App& app, const std::filesystem::path& path);

}  // namespace ranvier::train
