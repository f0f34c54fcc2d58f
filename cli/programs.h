// The programs that ranvier starts or asks, and where they are.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::cli {

// What stands beside the running program (ranvier-train, ranvier-bench-mpi, …); none if this build lacks it.
std::optional<std::filesystem::path> beside_this_program(std::string_view name);
// A program by its path, or by its name in $PATH; none if there is no such.
std::optional<std::filesystem::path> find_program(const std::string& name);
// The Python to use: what the user names, else $RANVIER_PYTHON, else the one whose torch this build is for, else
// python3. None if it is not there.
std::optional<std::filesystem::path> find_python(const std::string& named = {});

struct Answer {
  int exit_code = 0;
  std::string output;  // stdout only
};
// Runs a program to its end. None if it cannot be started or takes longer than `limit`; then it is killed.
std::optional<Answer> ask(const std::vector<std::string>& command, std::chrono::milliseconds limit);

// This process becomes that program. Throws Error{config} where it cannot be run.
[[noreturn]] void become(std::vector<std::string> command);

}  // namespace ranvier::cli
