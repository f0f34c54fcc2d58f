#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/spec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

constexpr double most_loss = 0.5;

// What stands behind "udp:".
double parse_loss(std::string_view name) {
  const StageSpec udp = parse_spec(name).front();
  const auto refuse = [&](std::string_view problem) {
    throw Error(
        ErrorKind::usage,
        fmt::format("transport '{}' {}; write udp:loss=0.01 for sums of gradients that do not wait for the last "
                    "hundredth, or udp",
                    name, problem));
  };
  double loss = 0;
  for (const auto& [key, value] : udp.settings) {
    if (key == "resync")
      refuse("has resync, by which ranks would differ for a while: this version keeps them the same bit for bit");
    if (key != "loss") refuse(fmt::format("has '{}', which is not known", key));
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), loss);
    if (problem != std::errc{} || end != value.data() + value.size() || !(loss > 0 && loss <= most_loss))
      refuse(fmt::format("has the loss '{}', which is not above 0 and at most {}", value, most_loss));
  }
  if (loss == 0 || !udp.value.empty()) refuse("does not say how much may be lost");
  return loss;
}

}  // namespace

TransportChoice parse_transport(std::string_view name) {
  if (name == "auto") return {.inside = "shm", .between = "tcp"};
  if (name == "shm") return {.inside = "shm"};
  const auto plus = name.find('+');
  std::string_view between = plus == name.npos ? name : name.substr(plus + 1);
  double loss = 0;
  if (between.starts_with("udp:")) {
    loss = parse_loss(between);
    if (plus != name.npos)
      throw Error(ErrorKind::usage,
                  fmt::format("transport '{}' is no pair: where gradients may be lost, udp serves all "
                              "ranks; write {}",
                              name, between));
    between = "udp";
  }
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
  return {.inside = plus == name.npos ? "" : "shm", .between = std::string(between), .loss = loss};
}

}  // namespace ranvier
