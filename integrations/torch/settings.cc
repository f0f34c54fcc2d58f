#include "integrations/torch/settings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/timeouts.h"

namespace ranvier::pytorch {
namespace {

std::chrono::milliseconds duration(const Setting& setting) {
  const auto& [name, text] = setting;
  const auto count = parse_number<std::int64_t>(text);
  if (!count || *count <= 0)
    throw Error(ErrorKind::config, name + " is '" + text + "': it must be a whole number of milliseconds above 0");
  return bounded(std::chrono::milliseconds(*count));
}

bool yes_or_no(const Setting& setting) {
  const auto& [name, text] = setting;
  if (text != "0" && text != "1")
    throw Error(ErrorKind::config, name + " is '" + text + "': write 1 for yes, 0 for no");
  return text == "1";
}

int sockets(const Setting& setting) {
  const auto& [name, text] = setting;
  const auto count = parse_number<int>(text);
  if (!count || *count < 1 || *count > most_sockets)
    throw Error(ErrorKind::config,
                name + " is '" + text + "': it must be a whole number from 1 to " + std::to_string(most_sockets));
  return *count;
}

PortRange ports(const Setting& setting) {
  const auto& [name, text] = setting;
  const auto range = parse_ports(text);
  if (!range) throw Error(ErrorKind::config, name + " is '" + text + "': write a range of ports such as 20000-20100");
  return *range;
}

std::vector<Rank> ranks(const Setting& setting) {
  const auto& [name, text] = setting;
  std::vector<Rank> all;
  for (std::string_view left = text; !left.empty();) {
    const std::string_view word = left.substr(0, left.find(','));
    const auto rank = parse_number<Rank>(word);
    if (!rank || *rank < 0) throw Error(ErrorKind::config, name + " is '" + text + "': write ranks such as 0,2,4");
    all.push_back(*rank);
    left.remove_prefix(std::min(word.size() + 1, left.size()));
  }
  return all;
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
  options.join_timeout_name = "timeout= of init_process_group, new_group or split_group";
  const std::map<std::string_view, std::function<void(const Setting&)>> known{
      {"RANVIER_TRANSPORT", [&](const Setting& setting) { options.transport = setting.second; }},
      {"RANVIER_ALGORITHM", [&](const Setting& setting) { options.algorithm = setting.second; }},
      {"RANVIER_TUNING", [&](const Setting& setting) { options.tuning = setting.second; }},
      {"RANVIER_MEASURE", [&](const Setting& setting) { options.measure = yes_or_no(setting); }},
      {"RANVIER_LEARN", [&](const Setting& setting) { options.learn = yes_or_no(setting); }},
      {"RANVIER_TOPOLOGY", [&](const Setting& setting) { options.topology = setting.second; }},
      {"RANVIER_INTERFACE", [&](const Setting& setting) { options.interface_address = setting.second; }},
      {"RANVIER_NODE", [&](const Setting& setting) { options.node = setting.second; }},
      {"RANVIER_SOCKETS", [&](const Setting& setting) { options.tcp_sockets = sockets(setting); }},
      {"RANVIER_PORTS", [&](const Setting& setting) { options.ports = ports(setting); }},
      {"RANVIER_KEY", [&](const Setting& setting) { options.security.key_file = setting.second; }},
      {"RANVIER_CERTIFICATE", [&](const Setting& setting) { options.security.certificate = setting.second; }},
      {"RANVIER_PRIVATE_KEY", [&](const Setting& setting) { options.security.private_key = setting.second; }},
      {"RANVIER_AUTHORITY", [&](const Setting& setting) { options.security.authority = setting.second; }},
      {"RANVIER_INSECURE", [&](const Setting& setting) { options.security.insecure = yes_or_no(setting); }},
      {"RANVIER_ENCRYPT_EVERYWHERE",
       [&](const Setting& setting) { options.security.encrypt_everywhere = yes_or_no(setting); }},
      {"RANVIER_LINK_RATE", [&](const Setting& setting) { options.link_bytes_per_second = rate(setting); }},
      {"RANVIER_DEAD_AFTER_MS", [&](const Setting& setting) { options.dead_after = duration(setting); }},
      {"world_ranks", [&](const Setting& setting) { options.world_ranks = ranks(setting); }},
      {"name", [&](const Setting& setting) { options.name = setting.second; }},
      {"timeout_ms", [&](const Setting& setting) { options.timeout = duration(setting); }},
      {"join_timeout_ms", [&](const Setting& setting) { options.join_timeout = duration(setting); }},
  };
  for (const Setting& setting : settings) {
    const auto found = known.find(setting.first);
    if (found == known.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, set] : known) names.push_back(name);
      throw Error(ErrorKind::config, unknown_name("setting", setting.first, names));
    }
    found->second(setting);
  }
  if (options.suspect_after > options.dead_after) options.suspect_after = options.dead_after / 2;
  return options;
}

}  // namespace ranvier::pytorch
