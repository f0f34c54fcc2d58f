// ranvier doctor: what this machine and this build have, and what is wrong with them.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "doctor/check.h"
#include "machine.h"
#include "output.h"

namespace ranvier::cli {
namespace {

using doctor::Check;
using doctor::Health;

constexpr auto doctor_examples = R"(
Each line is ok, warn (something works less well, or is missing that not everybody needs) or fail (something is broken);
the exit code is 1 when a line says fail.

Examples:
  ranvier doctor
  ranvier doctor --json -
  ranvier doctor --python .venv/bin/python
)";

std::string_view name_of(Health health) {
  constexpr std::array<std::string_view, 3> names{"ok", "warn", "fail"};
  return names[static_cast<std::size_t>(health)];
}

void print(const Check& check) {
  fmt::print("{:<5} {:<19} {}\n", name_of(check.health), check.name, check.finding);
  if (!check.remedy.empty()) fmt::print("{:<25} -> {}\n", "", check.remedy);
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  CLI::App app("Look at this machine and this build: what they can do, and what is wrong.", "ranvier doctor");
  app.footer(doctor_examples);
  std::string python, json_path;
  app.add_option("--python", python, "the Python whose torch is looked at")->type_name("PATH");
  app.add_option("--json", json_path, "write the findings there; - is stdout, in place of the lines")
      ->type_name("FILE");
  if (const auto code = parse(app, arguments)) return *code;

  const JsonFile file(json_path);
  nlohmann::json findings = nlohmann::json::array();
  bool broken = false;
  for (const auto& checks : {doctor::check_machine(), doctor::check_transports(), doctor::check_software(python)})
    for (const auto& check : checks) {
      broken = broken || check.health == Health::fail;
      if (json_path != "-") print(check);
      findings.push_back({{"name", check.name},
                          {"health", name_of(check.health)},
                          {"finding", check.finding},
                          {"remedy", check.remedy}});
    }
  file.write({{"checks", findings}, {"environment", environment()}});
  return broken ? 1 : 0;
}

}  // namespace ranvier::cli
