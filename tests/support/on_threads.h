// Ranks that are threads of a test.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::support {

// Calls body(rank) on a thread each, and returns when all have returned.
inline void on_threads(Rank count, const std::function<void(Rank)>& body) {
  std::vector<std::jthread> threads;
  for (Rank rank = 0; rank < count; ++rank) threads.emplace_back([&body, rank] { body(rank); });
}

}  // namespace ranvier::support
