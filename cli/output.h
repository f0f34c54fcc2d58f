// A file that holds all of a result or does not exist.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ranvier::cli {

// Made before the work begins, so that a path that cannot be written is found in time. The file appears with write(),
// whole, and replaces one that is there. "-" is stdout.
class JsonFile {
 public:
  // Throws Error{config} when there is no writing to `path`. An empty path: write() does nothing.
  explicit JsonFile(std::filesystem::path path);

  void write(const nlohmann::json&) const;

 private:
  std::filesystem::path path_;
};

}  // namespace ranvier::cli
