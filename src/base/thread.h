// Threads of ranvier's own.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "ranvier/error.h"

namespace ranvier {

// A std::thread or std::jthread that runs `body`. Throws Error{config} where the system gives no more of them; `what`
// says what it would have been for.
template <class Thread = std::thread, class Body>
Thread start_thread(std::string_view what, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::config,
                fmt::format("no thread could be started for {}: {}; raise the limit on processes and threads "
                            "(ulimit -u, or that of the container)",
                            what, error.code().message()));
  }
}

}  // namespace ranvier
