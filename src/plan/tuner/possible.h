// What a world or a network cannot do is left out of searches, until nothing is left.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "ranvier/error.h"
#include "ranvier/plan.h"

namespace ranvier::plan {

// Nothing, and why in `refusal`, where the call ends with Error{usage}.
template <class Call>
auto if_possible(Call call, std::string& refusal) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    refusal = error.what();
    return std::nullopt;
  }
}

[[noreturn]] inline void refuse_all(const std::string& last) {
  throw Error(ErrorKind::usage, fmt::format("no algorithm serves this network; the last one: {}", last));
}

}  // namespace ranvier::plan
