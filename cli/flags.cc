#include "flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>

#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier::cli {
namespace {

// The name by which messages call an option: its long one.
std::string long_name(const std::string& flags) { return flags.substr(flags.find("--")); }

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

std::uint64_t count_from(const std::string& flags, const std::string& word, std::uint64_t least, std::uint64_t most) {
  const auto number = parse_number<std::uint64_t>(word);
  if (!number || *number < least || *number > most)
    refuse(fmt::format("{} '{}' is not a whole number from {} to {}", long_name(flags), word, least, most));
  return *number;
}

[[noreturn]] void refuse_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word.front() == '-'; };
  const auto option = std::find_if(extras.begin(), extras.end(), is_option);
  if (option == extras.end())
    refuse(fmt::format("'{}' is one word too many; options begin with '--' (see {} --help)", extras.front(),
                       app.get_name()));
  std::vector<std::string> names;
  for (const auto* known : app.get_options())
    for (const auto& name : known->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  refuse(unknown_name("option", option->substr(0, option->find('=')), views));
}

// CLI11's own words, such as "--ranks: 1 required N missing", in a sentence with its remedy.
[[noreturn]] void refuse_what_cannot_be_parsed(const CLI::App& app, std::string words) {
  std::replace(words.begin(), words.end(), '\n', ' ');
  refuse(fmt::format("{} (see {} --help)", words, app.get_name()));
}

}  // namespace

std::optional<int> parse(CLI::App& app, const Arguments& arguments) {
  app.allow_extras();  // unknown ones are kept, so that they can be named here
  for (auto* option : app.get_options())
    if (option->get_expected_max() == 1 && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->take_last();  // as a script expects that appends its own
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& problem) {
    refuse_what_cannot_be_parsed(app, problem.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) refuse_extras(app, extras);
  return std::nullopt;
}

CLI::Option* add_name(CLI::App& app, const std::string& flags, std::string& value, const std::string& help,
                      std::vector<std::string_view> names) {
  const auto take = [&value, flags, names = std::move(names)](const std::string& word) {
    if (std::find(names.begin(), names.end(), word) == names.end())
      refuse(unknown_name(long_name(flags).substr(2), word, names));
    value = word;
  };
  return app.add_option_function<std::string>(flags, take, help)->default_str(value)->type_name("NAME");
}

CLI::Option* add_transport(CLI::App& app, std::string& value, const std::string& help) {
  const auto take = [&value](const std::string& word) {
    parse_transport(word);
    value = word;
  };
  const std::string all =
      fmt::format("{}: auto, {}, or a pair such as shm+mpi", help, fmt::join(transport_names, ", "));
  return app.add_option_function<std::string>("--transport", take, all)->default_str(value)->type_name("NAME");
}

CLI::Option* add_algorithm(CLI::App& app, std::string& value, const std::string& help,
                           std::vector<std::string_view> names) {
  const auto take = [&value, names = std::move(names)](const std::string& word) {
    const std::string name = word.substr(0, word.find(':'));
    if (std::find(names.begin(), names.end(), name) == names.end()) refuse(unknown_name("algorithm", name, names));
    if (word != "auto" && word != "vendor") parse_algorithm(word);
    value = word;
  };
  return app.add_option_function<std::string>("--algorithm", take, help)->default_str(value)->type_name("NAME[:DIMS]");
}

CLI::Option* add_bytes(CLI::App& app, const std::string& flags, std::size_t& bytes, const std::string& help) {
  const auto take = [&bytes, flags](const std::string& word) {
    const auto size = parse_bytes(word);
    if (!size || *size == 0)
      refuse(fmt::format("{} '{}' is not a size in bytes; write 4, 64K, 16M or 1G", long_name(flags), word));
    bytes = *size;
  };
  return app.add_option_function<std::string>(flags, take, help)->type_name("SIZE");
}

CLI::Option* add_count(CLI::App& app, const std::string& flags, std::uint64_t& count, const std::string& help,
                       std::uint64_t least, std::uint64_t most) {
  const auto take = [&count, flags, least, most](const std::string& word) {
    count = count_from(flags, word, least, most);
  };
  return app.add_option_function<std::string>(flags, take, help)->default_str(std::to_string(count))->type_name("N");
}

CLI::Option* add_count(CLI::App& app, const std::string& flags, std::optional<std::uint64_t>& count,
                       const std::string& help, std::uint64_t least, std::uint64_t most) {
  const auto take = [&count, flags, least, most](const std::string& word) {
    count = count_from(flags, word, least, most);
  };
  return app.add_option_function<std::string>(flags, take, help)->type_name("N");
}

void add_unequal_workers(CLI::App& app, UnequalWorkers& workers, const std::string& what) {
  app.add_option_function<std::string>(
         "--speeds", [&workers](const std::string& words) { take_speeds(words, workers); },
         what + ": 1,1,0.5,0.25, where 0.5 computes half as fast")
      ->type_name("X,…");
  app.add_option_function<std::string>(
         "--jitter", [&workers](const std::string& words) { take_jitter(words, workers); },
         "some steps take longer at random: 0.05x4, one in twenty four times as long")
      ->type_name("SHARExTIMES");
  app.add_option_function<std::string>(
         "--straggle", [&workers](const std::string& words) { take_stragglers(words, workers); },
         "slow a worker down for a while: 2:100-200x4, rank 2 in steps 100 to 199 four times")
      ->type_name("RANK:FROM-TOxTIMES,…");
}

void add_ports(CLI::App& app, PortRange& ports) {
  const auto take = [&ports](const std::string& word) {
    const auto range = parse_ports(word);
    if (!range) refuse(fmt::format("--ports '{}' is no range of ports; write 20000-20100", word));
    ports = *range;
  };
  app.add_option_function<std::string>("--ports", take, "listen on one of these while the ranks meet (default: any)")
      ->envname("RANVIER_PORTS")
      ->type_name("FIRST-LAST");
}

void add_security(CLI::App& app, SecurityOptions& security) {
  const auto add_file = [&](const char* flag, const char* variable, std::filesystem::path& file, const char* help) {
    app.add_option(flag, file, help)->envname(variable)->type_name("FILE");
  };
  add_file("--key", "RANVIER_KEY", security.key_file,
           "key of the job, as 'ranvier key new' made it (default: one is agreed on)");
  add_file("--certificate", "RANVIER_CERTIFICATE", security.certificate,
           "prove who this is by a certificate instead (PEM)");
  add_file("--private-key", "RANVIER_PRIVATE_KEY", security.private_key, "of the certificate (PEM)");
  add_file("--authority", "RANVIER_AUTHORITY", security.authority, "that signed the certificates of all ranks (PEM)");
  app.add_flag("--insecure", security.insecure, "encrypt nothing between hosts")->envname("RANVIER_INSECURE");
  app.add_flag("--encrypt-everywhere", security.encrypt_everywhere, "encrypt within a host too")
      ->envname("RANVIER_ENCRYPT_EVERYWHERE");
}

CLI::Option* add_seconds(CLI::App& app, const std::string& flags, std::chrono::milliseconds& time,
                         const std::string& help) {
  const auto take = [&time, flags](const std::string& word) {
    const auto seconds = parse_number<double>(word);
    if (!seconds || !(*seconds >= 0.001 && *seconds <= 1e6))
      refuse(fmt::format("{} '{}' is not a number of seconds from 0.001 to 1000000", long_name(flags), word));
    time = std::chrono::milliseconds(std::llround(*seconds * 1000));
  };
  return app.add_option_function<std::string>(flags, take, help)
      ->default_str(fmt::format("{}", static_cast<double>(time.count()) / 1000))
      ->type_name("SECONDS");
}

}  // namespace ranvier::cli
