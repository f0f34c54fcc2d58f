// What a call throws, as a value that tests can look at.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "ranvier/error.h"

namespace ranvier::conformance {

// The Error that `call` throws; none when it returns.
template <class F>
std::optional<Error> error_of(F&& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

inline std::string rank_name(Rank rank) { return "rank " + std::to_string(rank); }

// For EXPECT_THAT(error_of(…), throws(kind, "part of the sentence")).
MATCHER_P2(throws, kind, part, "throws " + std::string(name_of(kind)) + " with '" + std::string(part) + "' in it") {
  if (!arg) {
    *result_listener << "nothing was thrown";
    return false;
  }
  *result_listener << "it is " << name_of(arg->kind()) << ": " << arg->what();
  return arg->kind() == kind && std::string(arg->what()).find(part) != std::string::npos;
}

}  // namespace ranvier::conformance
