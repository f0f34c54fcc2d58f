// What a rank publishes of its place in MPI: "mpi-3 HOST SIZE PROCESS TAG CPUS".
#pragma once

#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/cpu_set.h"

namespace ranvier::transport {

struct MpiAddress {
  std::string host;   // and the process, where MPI has started no others
  int size = 1;       // of MPI_COMM_WORLD
  int process = 0;    // in it
  int first_tag = 0;  // of those that it receives on
  CpuSet cpus = {};   // on which it may run

  static constexpr std::string_view greeting = "mpi-3";

  std::string text() const {
    return fmt::format("{} {} {} {} {} {}", greeting, host, size, process, first_tag, cpus.text());
  }
  static std::optional<MpiAddress> parse(std::string_view text) {
    std::istringstream words{std::string(text)};
    std::string word, cpus, rest;
    MpiAddress address;
    words >> word >> address.host >> address.size >> address.process >> address.first_tag >> cpus;
    const auto known = CpuSet::parse(cpus);
    address.cpus = known.value_or(CpuSet());
    const bool whole = known && words && !(words >> rest) && word == greeting && address.process >= 0 &&
                       address.process < address.size && address.first_tag >= 0;
    return whole ? std::optional(address) : std::nullopt;
  }
};

}  // namespace ranvier::transport
