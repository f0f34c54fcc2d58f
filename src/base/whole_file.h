// Files that are read and written as a whole, so that others see them as they were before or whole.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace ranvier {

// Where the links of `path` lead, also if there is nothing yet. Empty if they lead nowhere.
std::filesystem::path followed(std::filesystem::path path);

// What a file says; or, as words for a sentence, why it was not read.
struct WholeFile {
  std::string text = {};
  std::string problem = {};  // empty if it was read
};
// Of regular files only, and of small ones: a pipe could keep its reader for ever, and a device has no end.
WholeFile read_whole(const std::filesystem::path& file, std::size_t most_bytes = std::size_t{16} << 20);

// Makes `text` the content of a file, which is no link (see followed) and need not exist. Leaves nothing beside it,
// whatever happens, but for a process that is killed on a file system without nameless files (O_TMPFILE). The reason
// where that cannot be. `durably`: returns once the disk has it, since a rename may outrun the contents where the power
// fails. `mode`: as of open(2), of the file that takes the place of what was there.
std::error_code write_whole(const std::filesystem::path& file, std::string_view text, bool durably = false,
                            mode_t mode = 0666);

// The same to wherever a user's path leads: links stay and are followed, also to a file that is not there yet; a device
// or a pipe is written to and stays what it is, and so does whatever stdout is, such as the file of a shell's "> file".
std::error_code write_named(const std::filesystem::path& path, std::string_view text, bool durably = false);
// Why write_named cannot be expected to, found out without writing anything that stays.
std::error_code check_named(const std::filesystem::path& path);

}  // namespace ranvier
