#include "sync/periodic.h"

#include <fmt/format.h>

#include <algorithm>

#include "ranvier/error.h"

namespace ranvier::sync {
namespace {

class PeriodicPolicy final : public SyncPolicy {
 public:
  PeriodicPolicy(std::string_view spec, PeriodicRule rule, std::uint64_t begin)
      : spec_(spec),
        rule_(std::move(rule)),
        begin_(std::max(begin, rule_.synchronous_steps)),
        period_(rule_.levels.back().period),
        next_(begin_ + period_) {
    for (const auto& level : rule_.levels) names_.push_back(level.name);
  }

  std::string_view spec() const override { return spec_; }
  std::span<const std::string> levels() const override { return names_; }
  std::size_t gradient_level() const override {
    return rule_.synchronous_steps > 0 ? names_.size() : rule_.gradient_levels;
  }
  bool averages_parameters() const override { return rule_.gradient_levels < names_.size(); }
  bool wants_spread() const override { return rule_.adaptation.bound > 0; }
  bool has_outer_step() const override { return !rule_.outer.is_plain(); }
  double outer_gain() const override { return rule_.outer.gain(); }
  std::uint64_t first_average() const override { return begin_ + rule_.levels.back().period; }
  bool delays_averages() const override { return rule_.delay > 0; }
  bool outer_follows_rate() const override { return has_outer_step() && rule_.outer_by_rate; }

  std::vector<SyncAction> react(const SyncEvent& event) override {
    switch (event.point) {
      case SyncPoint::step_begins:
        if (const std::size_t level = gradients_of(event.step); level > 0)
          return {{.what = SyncAction::What::gradients, .inside = 0, .level = level}};
        return {};
      case SyncPoint::step_ended:
        last_ = event.step;
        rates_ += event.learning_rate;
        ++rated_;
        return at_end_of(event.step);
      case SyncPoint::averaged:
        adapt(event);
        return {};
      case SyncPoint::ended:
        return agreed_ == names_.size() ? std::vector<SyncAction>{} : last_averages();
    }
    return {};
  }

  std::vector<double> save() const override {
    std::vector<double> kept = {static_cast<double>(period_), static_cast<double>(next_),  static_cast<double>(last_),
                                static_cast<double>(agreed_), static_cast<double>(begin_), rates_,
                                static_cast<double>(rated_)};
    if (rule_.delay > 0) kept.push_back(is_under_way_ ? 1 : 0);
    return kept;
  }
  void restore(std::span<const double> kept) override {
    if (kept.size() != save().size() || std::ranges::any_of(kept, [](double each) { return !(each >= 0); }) ||
        kept[0] < 1 || kept[3] > static_cast<double>(names_.size()))
      throw Error(ErrorKind::config, "what the checkpoint kept for the policy '" + spec_ +
                                         "' is of another one; resume with the --sync that it was saved with");
    period_ = static_cast<std::uint64_t>(kept[0]);
    next_ = static_cast<std::uint64_t>(kept[1]);
    last_ = static_cast<std::uint64_t>(kept[2]);
    agreed_ = static_cast<std::size_t>(kept[3]);
    begin_ = static_cast<std::uint64_t>(kept[4]);
    rates_ = kept[5];
    rated_ = static_cast<std::uint64_t>(kept[6]);
    is_under_way_ = rule_.delay > 0 && kept[7] != 0;
  }

 private:
  // The level over which the step behind `complete` ones averages gradients.
  std::size_t gradients_of(std::uint64_t complete) const {
    return complete < rule_.synchronous_steps ? names_.size() : rule_.gradient_levels;
  }

  // The outermost level whose period ends with `step`.
  std::size_t due(std::uint64_t step) const {
    const std::size_t by_gradients = gradients_of(step - 1);
    if (by_gradients == names_.size()) return by_gradients;
    if (step >= next_) return names_.size();
    for (std::size_t level = names_.size() - 1; level > by_gradients; --level)
      if ((step - begin_) % rule_.levels[level - 1].period == 0) return level;
    return by_gradients;
  }

  OuterStep outer() const {
    OuterStep step = rule_.outer;
    if (!rule_.outer_by_rate || rated_ == 0) return step;
    step.unit = rates_ / static_cast<double>(rated_);
    // Momentum in units of a rate that has fallen to 0 moves nothing: what is left is the plain average.
    return step.unit > 0 ? step : OuterStep{};
  }

  std::vector<SyncAction> at_end_of(std::uint64_t step) {
    std::vector<SyncAction> list;
    const std::uint64_t began = next_ - period_;
    if (is_under_way_ && step == began + rule_.delay) {
      list.push_back({.what = SyncAction::What::finish_average, .inside = names_.size() - 1, .level = names_.size()});
      is_under_way_ = false;
    }
    for (const SyncAction& each : averages(step, due(step))) list.push_back(each);
    if (rule_.delay > 0 && agreed_ == names_.size()) {
      list.back().what = SyncAction::What::begin_average;
      is_under_way_ = true;
      agreed_ = names_.size() - 1;
    }
    return list;
  }

  std::vector<SyncAction> averages(std::uint64_t step, std::size_t up_to) {
    agreed_ = up_to;
    std::vector<SyncAction> list;
    const std::size_t by_gradients = gradients_of(step == 0 ? 0 : step - 1);
    for (std::size_t level = by_gradients + 1; level <= up_to; ++level)
      list.push_back({.what = SyncAction::What::parameters,
                      .inside = level - 1,
                      .level = level,
                      .outer = level == names_.size() ? outer() : OuterStep{}});
    if (up_to == names_.size() && by_gradients < up_to) next_ = step + period_;
    if (up_to == names_.size()) {
      rates_ = 0;
      rated_ = 0;
    }
    return list;
  }

  // Of the part of a period with which training ends. Rate and momentum of the outer step are meant for whole periods:
  // on a part they would move the model by what earlier periods have come, away from the mean that was evaluated.
  std::vector<SyncAction> last_averages() {
    auto list = averages(last_, names_.size());
    for (SyncAction& each : list) each.outer = {};
    return list;
  }

  void adapt(const SyncEvent& event) {
    const auto& [bound, most] = rule_.adaptation;
    if (bound <= 0) return;
    if (event.spread < bound) period_ = std::min(2 * period_, most);
    if (event.spread > 4 * bound) period_ = std::max<std::uint64_t>(period_ / 2, 1);
    next_ = event.step + period_;
  }

  const std::string spec_;
  const PeriodicRule rule_;
  std::vector<std::string> names_;
  std::uint64_t begin_;        // steps before periods are counted
  std::uint64_t period_;       // of the last level
  std::uint64_t next_;         // the step with which its current one ends
  std::uint64_t last_ = 0;     // how many are complete
  std::size_t agreed_ = 0;     // the level whose groups agree
  double rates_ = 0;           // the sum of those of the steps since the last level's last average, …
  std::uint64_t rated_ = 0;    // … which are so many
  bool is_under_way_ = false;  // an average of the last level, since the current period began
};

}  // namespace

std::size_t period_or_epoch(Parameters& parameters, const SyncContext& context) {
  if (!parameters.has("") && context.steps_per_epoch == 0)
    throw Error(ErrorKind::usage, fmt::format("'{0}' without a period means once an epoch, and how many steps that has "
                                              "is not known here; write {0}:STEPS",
                                              parameters.stage()));
  return parameters.count("", context.steps_per_epoch, 1, longest_period);
}

std::unique_ptr<SyncPolicy> periodic_policy(std::string_view spec, PeriodicRule rule, const SyncContext& context) {
  if (context.world == 1) rule.outer = {};  // nothing is averaged, so there is nothing to take an outer step on
  return std::make_unique<PeriodicPolicy>(spec, std::move(rule), context.begin);
}

}  // namespace ranvier::sync
