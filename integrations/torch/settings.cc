#include "integrations/torch/settings.h"

#include <array>
#include <charconv>

#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::pytorch {
namespace {

std::chrono::milliseconds duration(const Setting& setting) {
  const auto& [name, text] = setting;
  std::int64_t count = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (problem != std::errc() || end != text.data() + text.size() || count <= 0)
    throw Error(ErrorKind::config, name + " is '" + text + "': it must be a whole number of milliseconds above 0");
  return std::chrono::milliseconds(count);
}

double rate(const Setting& setting) {
  const auto& [name, text] = setting;
  const auto bytes_per_second = parse_rate(text);
  if (!bytes_per_second || *bytes_per_second <= 0)
    throw Error(ErrorKind::config, name + " is '" + text + "': write a rate such as 200Mbit, 1Gbit or 25MB");
  return *bytes_per_second;
}

}  // namespace

CommunicatorOptions options_from(const std::vector<Setting>& settings) {
  CommunicatorOptions options;
  for (const Setting& setting : settings) {
    const auto& [name, value] = setting;
    if (name == "transport")
      options.transport = value;
    else if (name == "algorithm")
      options.algorithm = value;
    else if (name == "interface")
      options.interface_address = value;
    else if (name == "link_rate")
      options.link_bytes_per_second = rate(setting);
    else if (name == "timeout_ms")
      options.timeout = duration(setting);
    else if (name == "join_timeout_ms")
      options.join_timeout = duration(setting);
    else if (name == "suspect_after_ms")
      options.suspect_after = duration(setting);
    else if (name == "dead_after_ms")
      options.dead_after = duration(setting);
    else {
      static constexpr std::array<std::string_view, 8> names{"transport",        "algorithm",    "interface",
                                                             "link_rate",        "timeout_ms",   "join_timeout_ms",
                                                             "suspect_after_ms", "dead_after_ms"};
      throw Error(ErrorKind::config, unknown_name("setting", name, names));
    }
  }
  return options;
}

}  // namespace ranvier::pytorch
