#include "train/config.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <sstream>

#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::train {

// Not CLI11's own set_config: there the file would come before the environment, and unknown keys get no better words
// than that they were not expected.
void apply_config(CLI::App& app, const std::filesystem::path& path) {
  const WholeFile settings = read_whole(path);
  if (!settings.problem.empty())
    throw Error(ErrorKind::config, fmt::format("cannot read the settings in {} ({}); name a TOML file with --config",
                                               path.string(), settings.problem));
  std::istringstream file(settings.text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& problem) {
    throw Error(ErrorKind::config, fmt::format("{} is not TOML that can be read: {}", path.string(), problem.what()));
  }

  std::vector<std::string> known;
  for (const auto* option : app.get_options())
    if (const auto& name = option->get_lnames().front(); name != "help" && name != "config") known.push_back(name);
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const auto& item : items) {
    const std::string key = item.fullname();
    if (item.name == "++" || item.name == "--") continue;  // CLI11's marks of where a section begins and ends
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw Error(ErrorKind::usage, fmt::format("{}: {}", path.string(), unknown_name("setting", key, names)));
    auto* option = app.get_option("--" + key);
    if (option->count() > 0) continue;
    if (item.inputs.size() != 1)
      throw Error(ErrorKind::usage,
                  fmt::format("{}: '{}' takes one value and not {}", path.string(), key, item.inputs.size()));
    try {
      cli::check_answer(*option, key, item.inputs.front());
      option->add_result(item.inputs.front());
      option->run_callback();
    } catch (const Error& problem) {
      throw Error(problem.kind(), fmt::format("{}: {}", path.string(), problem.what()));
    } catch (const CLI::ParseError& problem) {
      throw Error(ErrorKind::usage, fmt::format("{}: {}", path.string(), problem.what()));
    }
  }
}

}  // namespace ranvier::train
