// The grammar of specs: stages joined by '+', each `name`, `name:value`, `name:key=value` or `name:value,key=value,…`.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace ranvier {

// Views into the text that was parsed.
struct StageSpec {
  std::string_view name;
  std::string_view value;                                               // empty where there is none
  std::vector<std::pair<std::string_view, std::string_view>> settings;  // key, value; no key twice
};

// Throws Error{usage} where a name, key or value is empty, a setting comes before the value or a key comes twice.
std::vector<StageSpec> parse_spec(std::string_view spec);

}  // namespace ranvier
