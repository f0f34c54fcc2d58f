// A rank that all_reduces over RANVIER_TRANSPORT (or tcp), and as RANVIER_PORTS and RANVIER_INSECURE say, until it
// fails, with the deadlines that users get: what the laboratory kills and cuts. It says "running" after its first
// operation; then its error, after which it ends with code 1.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "launch.h"
#include "meeting.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

int main() {
  using namespace ranvier;
  try {
    const auto place = cli::world_from_environment();
    if (!place) throw Error(ErrorKind::usage, "this is a part of the laboratory; see tests/support/lab/ranks_test.py");
    CommunicatorOptions options;
    const char* const transport = std::getenv("RANVIER_TRANSPORT");
    options.transport = transport == nullptr ? "tcp" : transport;
    if (const char* const ports = std::getenv("RANVIER_PORTS")) options.ports = parse_ports(ports).value();
    options.security.insecure = std::getenv("RANVIER_INSECURE") != nullptr;
    const auto communicator = cli::meet(*place, options);
    std::vector<float> data(64 << 10);
    for (bool said = false;; said = true) {
      communicator->all_reduce(data);
      if (said) continue;
      fmt::print("running\n");
      std::fflush(stdout);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "culprit {}: {}\n", error.culprit(), error.what());
  }
  return 1;
}
