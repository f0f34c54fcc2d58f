// How a wait is interrupted that may be in vain: docs/decisions/0040.
#include <fmt/format.h>

#include <string_view>

#include "engine/engine.h"

namespace ranvier::engine {
namespace {

using std::chrono::steady_clock;

// People take a tenth of a second for at once.
constexpr auto between_looks = std::chrono::milliseconds(50);

}  // namespace

bool Engine::NextLook::is_due() {
  if (!looks_) return false;
  const auto now = steady_clock::now();
  if (at_ == steady_clock::time_point{}) at_ = now + between_looks;
  return now >= at_;
}

// Without the driver's seat, since to ask may take a while: another thread then moves what is under way.
void Engine::look_for_interrupt(const std::function<bool()>& done, NextLook& look) {
  look.postpone();
  try {
    options_.check_interrupt();
  } catch (const std::exception& problem) {
    const std::exception_ptr thrown = std::current_exception();
    std::string_view what = problem.what();
    what = what.substr(0, what.find('\n'));
    // As pybind11 says it of exceptions without a message.
    if (constexpr std::string_view nothing = ": <EMPTY MESSAGE>"; what.ends_with(nothing))
      what.remove_suffix(nothing.size());
    const Rank self = transport_->rank();
    if (!done())
      abort(Error(ErrorKind::aborted, fmt::format("{} was interrupted: {}", options_.names.rank(self), what), self));
    stop_wanting();
    std::rethrow_exception(thrown);
  }
}

}  // namespace ranvier::engine
