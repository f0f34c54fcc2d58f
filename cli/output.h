// A file that holds all of a result or does not exist.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ranvier::cli {

// Opened before the work begins, so that a path that cannot be written is found in time; the file appears only with
// write(). "-" is stdout.
class JsonFile {
 public:
  // Throws Error{config} when there is no writing to `path`. An empty path: write() does nothing.
  explicit JsonFile(std::filesystem::path path);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  void write(const nlohmann::json&);

 private:
  std::filesystem::path path_;
  std::filesystem::path part_;  // beside it, until it is whole
};

}  // namespace ranvier::cli
