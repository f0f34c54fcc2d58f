#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/whole_file.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

namespace fs = std::filesystem;

// One path for all names of a file; empty where nothing could be replaced.
fs::path identity_of(const NamedFile& file, bool is_written) {
  if (file.path.empty() || file.path == "-") return {};
  std::error_code ignored;
  const auto status = fs::status(file.path, ignored);
  if (fs::exists(status) ? !fs::is_regular_file(status) : !is_written) return {};
  const fs::path place = followed(file.path);
  return place.empty() ? place : fs::weakly_canonical(fs::absolute(place, ignored), ignored);
}

}  // namespace

void refuse_overwriting(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read) {
  for (auto output = written.begin(); output != written.end(); ++output) {
    for (auto other = written.begin(); other != output; ++other)
      if (output->path == "-" && other->path == "-")
        throw Error(ErrorKind::usage, fmt::format("{} and {} would both write to stdout; name a file with one of them",
                                                  other->flag, output->flag));
    const fs::path place = identity_of(*output, true);
    if (place.empty()) continue;
    const auto refuse_if_same = [&](const NamedFile& other, bool is_written) {
      if (identity_of(other, is_written) == place)
        throw Error(ErrorKind::usage,
                    fmt::format("{} would overwrite what {} names, too: {}; name another file with {}", output->flag,
                                other.flag, output->path.string(), output->flag));
    };
    for (const NamedFile& other : read) refuse_if_same(other, false);
    for (auto other = written.begin(); other != output; ++other) refuse_if_same(*other, true);
  }
}

// Not fmt::print, which throws where stderr takes nothing.
void say(const std::string& text) { std::fputs(text.c_str(), stderr); }

std::string words_of(const std::exception& problem) {
  if (dynamic_cast<const std::bad_alloc*>(&problem) == nullptr) {
    std::string words;
    for (const char letter : std::string_view(problem.what()))  // on one line, whatever they quote
      letter == '\n' ? words += "\\n" : words += letter;
    return words;
  }
  return "there is not enough memory for this; ask for less, or allow more (ulimit -v, the limits of a container)";
}

int fail(std::string_view speaker, const std::exception& problem) {
  const auto* ours = dynamic_cast<const Error*>(&problem);
  say(fmt::format("{}: {}\n{}", speaker, words_of(problem), ours == nullptr ? "" : ours->flight_record()));
  return ours != nullptr && ours->kind() == ErrorKind::usage ? 2 : 1;
}

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // takes the lowest number that is free
  // What a terminal does not take, fmt::print throws amidst of a command, whose files it has yet to write. What goes
  // elsewhere is kept until it is flushed, and after_output() tells.
  static std::array<char, 1 << 20> kept;
  if (isatty(STDOUT_FILENO) == 0) std::setvbuf(stdout, kept.data(), _IOFBF, kept.size());
}

int after_output(int code) {
  const bool is_flushed = std::fflush(stdout) == 0;
  if (is_flushed && std::ferror(stdout) == 0) return code;
  // Of a failure before this one the reason is gone.
  const std::string why = is_flushed ? "" : fmt::format(" ({})", std::strerror(errno));
  say(fmt::format("ranvier: stdout did not take all of the output{}; what is printed above is incomplete\n", why));
  return code == 0 ? 1 : code;
}

ResultFile::ResultFile(std::filesystem::path path, std::string flag) : path_(std::move(path)), flag_(std::move(flag)) {
  if (path_.empty() || path_ == "-") return;
  if (const std::error_code problem = check_named(path_)) throw_unwritable(problem);
}

void ResultFile::throw_unwritable(const std::error_code& problem) const {
  throw Error(ErrorKind::config,
              fmt::format("cannot write {} ({}); name another file with {}", path_.string(), problem.message(), flag_));
}

// A path need not be UTF-8, which JSON has to be: a result is worth more than each letter of one.
void JsonFile::write(const nlohmann::json& value) const {
  if (file_.is_named()) file_.write(value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

void ResultFile::write(const std::string& text) const {
  if (path_.empty()) return;
  if (path_ == "-") {
    fmt::print("{}", text);
    return;
  }
  if (const std::error_code problem = write_named(path_, text)) throw_unwritable(problem);
}

}  // namespace ranvier::cli
