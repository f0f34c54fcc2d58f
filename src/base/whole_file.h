// Files that others see as they were before or whole.
#pragma once

#include <filesystem>
#include <string_view>
#include <system_error>

namespace ranvier {

// Where the links of `path` lead, also if there is nothing yet. Empty if they lead nowhere.
std::filesystem::path followed(std::filesystem::path path);

// Makes `text` the content of a file, which is no link (see followed) and need not exist. Leaves nothing beside it,
// whatever happens. The reason where that cannot be.
std::error_code write_whole(const std::filesystem::path& file, std::string_view text);

}  // namespace ranvier
