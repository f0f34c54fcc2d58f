// What the examples that split a layer over workers have in common: processes on this machine that are the ranks of a
// communicator, and numbers that all of them know.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/store.h"

namespace examples {

// The same numbers in every process, without a file: values in [-1, 1) that look random.
inline float number(std::uint64_t stream, std::uint64_t i) {
  std::uint64_t x = (stream << 40) + i + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<float>(static_cast<std::int32_t>(x >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}

// A whole number from 1; 0 for anything else.
inline long positive(const char* word) {
  char* end = nullptr;
  const long value = std::strtol(word, &end, 10);
  return *word != '\0' && *end == '\0' && value > 0 && value <= 1'000'000 ? value : 0;
}

// What a worker does, on each: whether all went well, as far as this rank can tell.
using Work = std::function<bool(ranvier::Communicator&)>;

inline int run_worker(const char* program, const std::filesystem::path& meeting_place, ranvier::Rank rank,
                      ranvier::Rank workers, const Work& work) {
  try {
    const auto store = ranvier::file_store(meeting_place);
    ranvier::CommunicatorOptions options;
    options.join_timeout = std::chrono::minutes(1);
    const auto comm = ranvier::Communicator::connect(*store, rank, workers, options);
    return work(*comm) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: rank %d: %s\n", program, rank, error.what());
    return 1;
  }
}

// Runs `work` in so many processes, of which this one is rank 0. The exit code: 0 where it went well in all.
inline int run_workers(const char* program, ranvier::Rank workers, const Work& work) {
  std::string meeting_place = (std::filesystem::temp_directory_path() / (std::string(program) + "_XXXXXX")).string();
  if (mkdtemp(meeting_place.data()) == nullptr) {
    std::fprintf(stderr, "%s: no folder for the workers to meet in (%s)\n", program, meeting_place.c_str());
    return 1;
  }
  std::vector<pid_t> children;
  for (ranvier::Rank rank = 1; rank < workers; ++rank) {
    const pid_t child = fork();
    if (child == 0) std::_Exit(run_worker(program, meeting_place, rank, workers, work));
    if (child < 0) std::perror("a worker could not be started");  // the others will miss it
    if (child > 0) children.push_back(child);
  }
  bool well = run_worker(program, meeting_place, 0, workers, work) == 0;
  for (const pid_t child : children) {
    int status = 0;
    well = waitpid(child, &status, 0) == child && status == 0 && well;
  }
  std::filesystem::remove_all(meeting_place);
  return well ? 0 : 1;
}

}  // namespace examples
