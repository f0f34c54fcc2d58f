// What those who wait are told by.
#pragma once

#include <functional>

namespace ranvier::engine {

// Says on stderr what a callback throws, which is called in the middle of what others wait for.
void call_back(const std::function<void()>& callback);

}  // namespace ranvier::engine
