#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier {

TransportChoice parse_transport(std::string_view name) {
  if (name == "auto") return {.inside = "shm", .between = "tcp"};
  if (name == "shm") return {.inside = "shm"};
  const auto plus = name.find('+');
  const std::string_view between = plus == name.npos ? name : name.substr(plus + 1);
  if (plus != name.npos && name.substr(0, plus) != "shm")
    throw Error(ErrorKind::usage,
                fmt::format("transport '{}' is no pair: within a host it is always shm, as in shm+tcp", name));
  const bool known = std::ranges::find(transport_names, between) != transport_names.end() && between != "shm";
  if (!known) {
    std::vector<std::string_view> names{"auto"};
    names.insert(names.end(), transport_names.begin(), transport_names.end());
    names.emplace_back("shm+tcp");
    throw Error(ErrorKind::usage, unknown_name("transport", name, names));
  }
  return {.inside = plus == name.npos ? "" : "shm", .between = std::string(between)};
}

}  // namespace ranvier
