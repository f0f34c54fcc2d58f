#include "flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "base/edits.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/security.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"
#include "schedule/spelling.h"

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
  // --key $(cat job.key)
  if (std::ranges::any_of(extras, [](const std::string& word) { return has_job_key(word); }))
    refuse(
        "one word is a key: others of this host may have read it there; make a new one in a file (ranvier key new > "
        "job.key) and name that with --key");
  if (option == extras.end())
    refuse(fmt::format("'{}' is one word too many; options begin with '--' (see {} --help)", extras.front(),
                       app.get_name()));
  std::vector<std::string> names;
  for (const auto* known : app.get_options())
    for (const auto& name : known->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  refuse(unknown_name("option", option->substr(0, option->find('=')), views));
}

// Words of a user, or of CLI11, may have several.
std::string in_one_line(std::string words) {
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
}

// CLI11's own words, in a sentence with its remedy.
[[noreturn]] void refuse_what_cannot_be_parsed(const CLI::App& app, const std::string& words) {
  refuse(fmt::format("{} (see {} --help)", in_one_line(words), app.get_name()));
}

// "--workers: 1 required N missing" is CLI11's.
[[noreturn]] void refuse_missing_value(const CLI::App& app, const std::string& words) {
  const std::string name = words.substr(0, words.find(':'));
  const auto* option = app.get_option_no_throw(name);
  if (option == nullptr || option->get_type_name().empty()) refuse_what_cannot_be_parsed(app, words);
  refuse(
      fmt::format("{0} needs a value; write {0} {1} (see {2} --help)", name, option->get_type_name(), app.get_name()));
}

// What CLI11 stopped at, where that was a variable. It marks an option before it runs the callback, and runs them in
// the order in which the options were added.
std::string variable_at_fault(const CLI::App& app) {
  const auto options = app.get_options();
  const auto last =
      std::find_if(options.rbegin(), options.rend(), [](const auto* option) { return option->get_callback_run(); });
  return last == options.rend() ? "" : variable_of(**last);
}

void check_answers(const CLI::App& app, const Arguments& arguments) {
  for (const auto* option : app.get_options()) {
    const char* const value = option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
    if (value != nullptr && *value != '\0') check_answer(*option, option->get_envname(), value);
  }
  for (const std::string& argument : arguments) {
    const auto end = argument.find('=');
    if (!argument.starts_with("--") || end >= argument.size() - 1) continue;
    const std::string name = argument.substr(0, end);
    if (const auto* option = app.get_option_no_throw(name)) check_answer(*option, name, argument.substr(end + 1));
  }
}

// Variables that are read elsewhere than by options of a command, or by those of another one.
constexpr std::string_view known_variables[] = {"RANVIER_ALGORITHM",
                                                "RANVIER_AUTHORITY",
                                                "RANVIER_CERTIFICATE",
                                                "RANVIER_DEAD_AFTER_MS",
                                                "RANVIER_ENCRYPT_EVERYWHERE",
                                                "RANVIER_INSECURE",
                                                "RANVIER_INTERFACE",
                                                "RANVIER_KEY",
                                                "RANVIER_LEARN",
                                                "RANVIER_LINK_RATE",
                                                "RANVIER_LOCAL_RANK",
                                                "RANVIER_LOCAL_WORLD",
                                                "RANVIER_MEASURE",
                                                "RANVIER_MODULES",
                                                "RANVIER_NODE",
                                                "RANVIER_PORTS",
                                                "RANVIER_PRIVATE_KEY",
                                                "RANVIER_PYTHON",
                                                "RANVIER_RANK",
                                                "RANVIER_RESTART",
                                                "RANVIER_SOCKETS",
                                                "RANVIER_STORE",
                                                "RANVIER_TOPOLOGY",
                                                "RANVIER_TRANSPORT",
                                                "RANVIER_TUNING",
                                                "RANVIER_WORLD"};

// One process of a job tells the user, not all of them; those that a command starts have RANVIER_RANK.
bool speaks_for_the_job() {
  if (std::getenv("RANVIER_RANK") != nullptr) return false;
  for (const char* rank : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(rank); value != nullptr && std::string_view(value) != "0") return false;
  return true;
}

// Kubernetes tells pods of a service called ranvier where it is: RANVIER_PORT=tcp://10.0.0.1:80.
bool is_of_a_service(std::string_view value) { return value.starts_with("tcp://") || value.starts_with("udp://"); }

void warn_of_misspellings(const CLI::App& app) {
  std::vector<std::string> names(std::begin(known_variables), std::end(known_variables));
  for (const auto* option : app.get_options())
    if (!option->get_envname().empty()) names.push_back(option->get_envname());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view whole = *entry, word = whole.substr(0, whole.find('='));
    if (!word.starts_with("RANVIER_") || std::find(names.begin(), names.end(), word) != names.end()) continue;
    // Nothing further: other programs may have variables of that prefix, too.
    const auto near =
        std::find_if(names.begin(), names.end(), [&](const auto& name) { return edits(word, name) == 1; });
    if (near != names.end() && !is_of_a_service(whole.substr(std::min(word.size() + 1, whole.size()))))
      say(fmt::format("{}: {} is no setting of ranvier; did you mean {}?\n", app.get_name(), word, *near));
  }
}

}  // namespace

void set_unless_given(CLI::App& app, const std::string& flag, const std::string& value) {
  CLI::Option* const option = app.get_option(flag);
  if (option->count() > 0) return;
  option->add_result(value);
  option->run_callback();
}

std::optional<int> parse(CLI::App& app, const Arguments& arguments) {
  app.allow_extras();  // unknown ones are kept, so that they can be named here
  for (auto* option : app.get_options())
    if (option->get_expected_max() == 1 && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->take_last();  // as a script expects that appends its own
  check_answers(app, arguments);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const Error& problem) {
    throw Error(problem.kind(), in_one_line(variable_at_fault(app) + problem.what()));
  } catch (const CLI::ConversionError& problem) {
    refuse_what_cannot_be_parsed(app, variable_at_fault(app) + problem.what());
  } catch (const CLI::ArgumentMismatch& problem) {
    refuse_missing_value(app, problem.what());
  } catch (const CLI::ParseError& problem) {
    refuse_what_cannot_be_parsed(app, problem.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) refuse_extras(app, extras);
  if (speaks_for_the_job()) warn_of_misspellings(app);
  return std::nullopt;
}

void check_answer(const CLI::Option& option, const std::string& name, const std::string& word) {
  constexpr std::string_view words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
  if (option.get_items_expected_max() == 0 && std::ranges::find(words, word) == std::end(words))
    refuse(in_one_line(fmt::format("{}: it is '{}'; write 1 for yes, 0 for no", name, word)));
}

std::string variable_of(const CLI::Option& option) {
  const std::string variable = option.get_envname();
  const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
  const auto& words = option.results();
  return value != nullptr && words.size() == 1 && words.front() == value ? variable + ": " : "";
}

CLI::Option* add_name(CLI::App& app, const std::string& flags, std::string& value, const std::string& help,
                      std::vector<std::string_view> names) {
  const std::string all = fmt::format("{}: {}", help, fmt::join(names, ", "));
  const auto take = [&value, flags, names = std::move(names)](const std::string& word) {
    if (std::find(names.begin(), names.end(), word) == names.end())
      refuse(unknown_name(long_name(flags).substr(2), word, names));
    value = word;
  };
  return app.add_option_function<std::string>(flags, take, all)->default_str(value)->type_name("NAME");
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
  const std::string all = fmt::format("{}: {}; butterfly is halving_doubling", help, fmt::join(names, ", "));
  const auto take = [&value, names = std::move(names)](const std::string& given) {
    const std::string word = one_spelling(given);
    const std::string name = word.substr(0, word.find(':'));
    if (std::find(names.begin(), names.end(), name) == names.end()) refuse(unknown_name("algorithm", name, names));
    if (word != "auto" && word != "vendor") parse_algorithm(word);
    value = word;
  };
  return app.add_option_function<std::string>("--algorithm", take, all)->default_str(value)->type_name("NAME[:DIMS]");
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

double link_rate_of(const std::string& word, std::string_view or_several) {
  const auto rate = parse_rate(word);
  if (!rate) refuse(fmt::format("--link-rate '{}' is not a rate; write 200Mbit or 25MB{}", word, or_several));
  constexpr double least = 125, most = 125e12;  // as of the files of probe
  if (!(*rate >= least && *rate <= most))
    refuse(fmt::format("--link-rate {} is not from 1kbit to 1000000Gbit a second, which links have", word));
  return *rate;
}

void add_listening(CLI::App& app, std::string& interface_address, std::uint64_t& sockets, PortRange& ports,
                   SecurityOptions& security) {
  app.add_option("--interface", interface_address,
                 "address to listen on, or an interface that has one (default: all of this host's)")
      ->envname("RANVIER_INTERFACE")
      ->type_name("ADDRESS");
  add_count(app, "--sockets", sockets, "of tcp or grpc for each link, where one is held below the line's rate", 1,
            most_sockets)
      ->envname("RANVIER_SOCKETS");
  const auto take = [&ports](const std::string& word) {
    const auto range = parse_ports(word);
    if (!range) refuse(fmt::format("--ports '{}' is no range of ports; write 20000-20100", word));
    ports = *range;
  };
  app.add_option_function<std::string>("--ports", take, "listen on one of these while the ranks meet (default: any)")
      ->envname("RANVIER_PORTS")
      ->type_name("FIRST-LAST");
  add_security(app, security);
}

void require_name_in_front(std::string_view kind, std::string_view spec, std::span<const std::string_view> names,
                           std::string_view or_else) {
  const std::string_view name = spec.substr(0, spec.find_first_of(":,+"));
  if (std::ranges::find(names, name) == names.end())
    throw Error(ErrorKind::usage, fmt::format("{}; or {}", unknown_name(kind, name, names), or_else));
}

void check_ports(const PortRange& ports, std::uint64_t ranks) {
  const std::uint64_t count = ports.first == 0 ? ranks : std::uint64_t{ports.last} - ports.first + 1;
  if (count < ranks)
    refuse(fmt::format("--ports {}-{} are {} for {} ranks of this host; name a range with one for each", ports.first,
                       ports.last, count, ranks));
}

void add_security(CLI::App& app, SecurityOptions& security) {
  const auto add_file = [&](const char* flag, const char* variable, std::filesystem::path& file, const char* help) {
    // As of a shell whose variable is not set: without it a job would go on by less than was asked for.
    const auto names_one = [](const std::string& word) {
      return word.empty() ? std::string("names no file; name one, or leave it out") : std::string();
    };
    app.add_option(flag, file, help)->envname(variable)->type_name("FILE")->check(names_one);
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

std::vector<NamedFile> files_of(const SecurityOptions& security) {
  return {{"--key", security.key_file},
          {"--certificate", security.certificate},
          {"--private-key", security.private_key},
          {"--authority", security.authority}};
}

CLI::Option* add_switch(CLI::App& app, const std::string& flags, std::optional<bool>& value, const std::string& help) {
  return app.add_flag_function(
      flags, [&value](std::int64_t count) { value = count > 0; }, help);
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
