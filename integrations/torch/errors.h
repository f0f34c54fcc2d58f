// ranvier's exceptions as torch knows them, and back.
#pragma once

#include <exception>

namespace ranvier::pytorch {

// ranvier::Error{usage} becomes ValueError, {unreachable, peer_lost} DistNetworkError, other kinds DistBackendError;
// its flight record is appended to the text. Anything else is returned as it is. Null stays null.
std::exception_ptr to_torch(std::exception_ptr error);

// Runs `body`; what it throws comes out as to_torch(…).
template <class Body>
decltype(auto) translating_errors(Body&& body) {
  try {
    return body();
  } catch (...) {
    std::rethrow_exception(to_torch(std::current_exception()));
  }
}

}  // namespace ranvier::pytorch
