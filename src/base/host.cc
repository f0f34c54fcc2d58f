#include "base/host.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

namespace ranvier {

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string host_identity() {
  const std::string boot = boot_id();
  struct stat network {};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return {};
  return fmt::format("{}/{}", boot, network.st_ino);
}

}  // namespace ranvier
