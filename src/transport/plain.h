// What is not encrypted does not leave the host unasked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::transport {

// Throws Error{config} naming the rank unless it is on this host: `host` is its host_identity(), `ips` are where it
// can be reached.
void refuse_other_host(std::string_view transport, Rank rank, const std::string& host,
                       const std::vector<std::string>& ips);

}  // namespace ranvier::transport
