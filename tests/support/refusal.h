// What a call is refused with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ranvier/error.h"

namespace ranvier::support {

// The sentence of the Error of that kind that `call` throws.
template <class Call>
std::string refusal(const Call& call, ErrorKind kind = ErrorKind::usage) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace ranvier::support
