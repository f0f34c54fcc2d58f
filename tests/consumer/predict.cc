// A step of training that a file describes, on a network that need not be there.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "ranvier/chakra.h"
#include "ranvier/simulate.h"
#include "ranvier/workload_file.h"

int main(int, char** arguments) {
  const ranvier::Workload workload = ranvier::read_workload(arguments[1]);
  const ranvier::LinkSpeed speed{.bytes_per_second = 1e9, .latency = {}};
  const auto step = ranvier::simulate_step(workload, ranvier::topology::star(2, speed), {.algorithm = "ring"});
  std::printf("step %.0f us\n", step.step_ns / 1e3);
  try {
    ranvier::read_chakra_trace(std::filesystem::path(arguments[1]).parent_path());
  } catch (const std::exception& error) {
    std::printf("no trace\n");
  }
}
