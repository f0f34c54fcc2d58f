// Files that hold all of a result or do not exist.
#pragma once

#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ranvier::cli {

// Made before the work begins, so that a path that cannot be written is found in time. The file appears with write(),
// whole, as write_named (base/whole_file.h) has it. "-" is stdout.
class ResultFile {
 public:
  // Throws Error{config} when there is no writing to `path`, which `flag` named. An empty path: write() does nothing.
  ResultFile(std::filesystem::path path, std::string flag);

  void write(const std::string& text) const;
  bool is_named() const { return !path_.empty(); }

 private:
  [[noreturn]] void throw_unwritable(const std::error_code& problem) const;

  std::filesystem::path path_;
  std::string flag_;
};

// A file by the flag that names it. Where the path is empty, "-" or a device there is none.
struct NamedFile {
  std::string_view flag;
  std::filesystem::path path;
};

// Throws Error{usage} where a file of `written` is, links followed, also another one of these: one would replace the
// other in silence. What a command may both read and write is not in `read`.
void refuse_overwriting(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read = {});

// Words for people, on stderr, in one write. Where nobody takes them (a full disk, nobody who reads) they are dropped:
// the work goes on.
void say(const std::string& text);

// What an exception says, in words that tell what to do also where memory is missing.
std::string words_of(const std::exception&);

// Says what ended a program or a rank of it, the speaker, and returns its exit code. One write, so that the words of
// several do not mix.
int fail(std::string_view speaker, const std::exception&);

// To be called before anything else is opened: a file that took the number of a closed stdout or stderr would get what
// is printed there. What is printed to a closed stdout fails, as it does elsewhere, and after_output() says so.
void open_standard_streams();

// What a program's main() returns in the end: `code`, or 1 where stdout did not take all that was printed, which is
// then said on stderr.
int after_output(int code);

class JsonFile {
 public:
  explicit JsonFile(std::filesystem::path path) : file_(std::move(path), "--json") {}
  void write(const nlohmann::json&) const;

 private:
  ResultFile file_;
};

}  // namespace ranvier::cli
