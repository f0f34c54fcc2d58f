#include "output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/whole_file.h"
#include "ranvier/error.h"

namespace ranvier::cli {

int after_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "ranvier: stdout did not take all of the output ({}); what is printed above is incomplete\n",
             std::strerror(errno));
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

void JsonFile::write(const nlohmann::json& value) const { file_.write(value.dump(2) + '\n'); }

void ResultFile::write(const std::string& text) const {
  if (path_.empty()) return;
  if (path_ == "-") {
    fmt::print("{}", text);
    return;
  }
  if (const std::error_code problem = write_named(path_, text)) throw_unwritable(problem);
}

}  // namespace ranvier::cli
