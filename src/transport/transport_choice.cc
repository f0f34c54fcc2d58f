#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/spec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

constexpr double most_loss = 0.5;
constexpr std::uint64_t most_resync = 1'000'000;

// What stands behind "udp:".
TransportChoice parse_lossy(std::string_view name) {
  const StageSpec udp = parse_spec(name).front();
  const auto refuse = [&](std::string_view problem) {
    throw Error(
        ErrorKind::usage,
        fmt::format("transport '{}' {}; write udp:loss=0.01 for sums of gradients that do not wait for the last "
                    "hundredth, udp:loss=0.01,resync=100 for ranks that may differ for 100 steps, or udp",
                    name, problem));
  };
  TransportChoice choice{.between = "udp"};
  for (const auto& [key, value] : udp.settings) {
    if (key == "loss") {
      choice.loss = parse_number<double>(value).value_or(0);
      if (!(choice.loss > 0 && choice.loss <= most_loss))
        refuse(fmt::format("has the loss '{}', which is not above 0 and at most {}", value, most_loss));
    } else if (key == "resync") {
      choice.resync = parse_number<std::uint64_t>(value).value_or(0);
      if (choice.resync == 0 || choice.resync > most_resync)
        refuse(fmt::format("has resync '{}', which is not a number of steps from 1 to {}", value, most_resync));
    } else {
      refuse(fmt::format("has '{}', which is not known", key));
    }
  }
  if (choice.loss == 0 || !udp.value.empty()) refuse("does not say how much may be lost");
  return choice;
}

}  // namespace

TransportChoice parse_transport(std::string_view name) {
  if (name == "auto") return {.inside = "shm", .between = "tcp"};
  if (name == "shm") return {.inside = "shm"};
  const auto plus = name.find('+');
  const std::string_view between = plus == name.npos ? name : name.substr(plus + 1);
  if (between.starts_with("udp:")) {
    TransportChoice choice = parse_lossy(between);
    if (plus != name.npos)
      throw Error(ErrorKind::usage,
                  fmt::format("transport '{}' is no pair: where gradients may be lost, udp serves all "
                              "ranks; write {}",
                              name, between));
    return choice;
  }
  if (plus != name.npos && name.substr(0, plus) != "shm")
    throw Error(ErrorKind::usage,
                fmt::format("transport '{}' is no pair: within a host it is always shm, as in shm+tcp", name));
  const bool known = std::ranges::find(transport_names, between) != transport_names.end() && between != "shm";
  if (!known) {
    std::vector<std::string_view> names{"auto"};
    names.insert(names.end(), transport_names.begin(), transport_names.end());
    std::vector<std::string> pairs;
    for (const auto& outside : transport_names)
      if (outside != "shm") pairs.push_back(fmt::format("shm+{}", outside));
    names.insert(names.end(), pairs.begin(), pairs.end());
    throw Error(ErrorKind::usage, unknown_name("transport", name, names));
  }
  return {.inside = plus == name.npos ? "" : "shm", .between = std::string(between)};
}

}  // namespace ranvier
