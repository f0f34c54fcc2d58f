// One thing that doctor looks at, and what it found.
#pragma once

#include <string>
#include <vector>

namespace ranvier::doctor {

enum class Health { ok, warn, fail };

struct Check {
  std::string name;
  Health health = Health::ok;
  std::string finding;
  std::string remedy;  // what to do; empty where all is well
};

// `value`, if `good`; else with the health and the remedy given.
inline Check check(std::string name, std::string finding, bool good, Health otherwise, std::string remedy) {
  if (good) return {std::move(name), Health::ok, std::move(finding), {}};
  return {std::move(name), otherwise, std::move(finding), std::move(remedy)};
}

std::vector<Check> check_machine();     // cores, memory, limits, kernel settings
std::vector<Check> check_transports();  // opens a world of two ranks on each and reduces something over it
std::vector<Check> check_software(const std::string& python);  // torch, MPI and the parts of ranvier that need them

}  // namespace ranvier::doctor
