// Other names of algorithms.
#pragma once

#include <string>
#include <string_view>

namespace ranvier {

// The one spelling of what also has another name: "halving_doubling" for "butterfly", with what stands behind it. Any
// other word stays as it is.
std::string one_spelling(std::string_view spec);

}  // namespace ranvier
