// The file of a tuning table (ranvier/tuning.h), to which runs may add what they learned.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ranvier/tuning.h"

namespace ranvier::engine {

// What it says; nothing where there is no file yet. Throws Error{config} where that cannot be seen, or what is learned
// could not be written there, and as TuningTable::read does.
TuningTable read_to_complete(const std::filesystem::path& file);

// What it says as the text that it stands in, nothing where there is no file yet.
std::string text_if_there(const std::filesystem::path& file);

// That of a file that has to be there. Throws Error{config} where it cannot be read; what it says is not looked at.
std::string tuning_text(const std::filesystem::path& file);

// Rows of one kind to be in the place of what a table has of it; and that for several kinds.
using RowsByKind = std::vector<std::vector<TuningRow>>;

// Puts the rows that `rows` makes of what the file says by now in their place there; all else stays as it is. Others
// who call this come before or after, as far as the file system has locks; whoever reads the file finds it as it was
// before or whole. Throws Error{config}.
void complete(const std::filesystem::path& file, const std::function<RowsByKind(const TuningTable&)>& rows);

}  // namespace ranvier::engine
