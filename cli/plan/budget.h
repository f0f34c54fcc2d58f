// How long a search for a plan may take.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace ranvier::planning {

struct SearchLimit {
  std::optional<std::chrono::milliseconds> time = {};  // none: until everything is known
  std::string flag = "--limit";                        // that says so, for what is said where it is too short
};

// How long it has taken since this was made, and whether anything was ended for it.
class Budget {
 public:
  using Clock = std::chrono::steady_clock;

  // `on_question`: told how long it has taken whenever somebody asks.
  explicit Budget(SearchLimit limit, std::function<void(Clock::duration)> on_question = {})
      : limit_(std::move(limit)), on_question_(std::move(on_question)) {}

  // For SimulateOptions::enough and PlanSearch::enough: yes once that share of the limit is over. Not to outlive this.
  std::function<bool()> until(double share);
  bool ended_something() const { return ends_; }
  // "the 2 s of --limit"
  std::string in_words() const;

 private:
  const SearchLimit limit_;
  const std::function<void(Clock::duration)> on_question_;
  const Clock::time_point begin_ = Clock::now();
  bool ends_ = false;
};

}  // namespace ranvier::planning
