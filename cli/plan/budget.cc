#include "plan/budget.h"

#include <fmt/format.h>

namespace ranvier::planning {

std::function<bool()> Budget::until(double share) {
  return [this, share] {
    const auto passed = Clock::now() - begin_;
    if (on_question_) on_question_(passed);
    const bool over = limit_.time && passed >= *limit_.time * share;
    ends_ |= over;
    return over;
  };
}

std::string Budget::in_words() const {
  if (!limit_.time) return "no limit";
  return fmt::format("the {:.3g} s of {}", std::chrono::duration<double>(*limit_.time).count(), limit_.flag);
}

}  // namespace ranvier::planning
