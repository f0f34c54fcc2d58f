// Streaming DiLoCo: the parameters travel in P fragments, each every H steps and one every H / P, while training goes
// on. What has been sent behind step t is applied behind step t + tau, and then replicas keep a share alpha of what
// they have made of it meanwhile. A P-th of the bytes at a time, in the time of tau steps, for nearly the same result.
// Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch",
// arXiv:2501.18512, 2025.
//
// At the end replicas become their mean, without an outer step: fragments have just had theirs, but for one under way,
// which comes too late to be applied.
#include <fmt/format.h>

#include "ranvier/error.h"
#include "sync/periodic.h"

namespace ranvier::sync {
namespace {

struct StreamingRule {
  std::uint64_t period = 1;     // steps between two exchanges of a fragment
  std::uint64_t fragments = 1;  // a divisor of it
  std::uint64_t delay = 0;      // less than the steps between two fragments: one at most is under way
  double merge = 0;
  OuterStep outer = {};
};

class StreamingPolicy final : public SyncPolicy {
 public:
  StreamingPolicy(std::string_view spec, const StreamingRule& rule, const SyncContext& context)
      : spec_(spec), rule_(rule), is_alone_(context.world == 1), begin_(context.begin) {}

  std::string_view spec() const override { return spec_; }
  std::span<const std::string> levels() const override { return levels_; }
  bool averages_parameters() const override { return true; }
  bool has_outer_step() const override { return true; }
  double outer_gain() const override { return rule_.outer.gain(); }
  std::uint64_t first_average() const override { return begin_ + spacing(); }
  std::size_t fragments() const override { return rule_.fragments; }

  std::vector<SyncAction> react(const SyncEvent& event) override {
    std::vector<SyncAction> asked;
    if (is_alone_) return asked;
    if (event.point == SyncPoint::step_ended) {
      if (is_under_way_ && event.step == sent_ + rule_.delay) asked.push_back(finish(rule_.outer, rule_.merge));
      const std::uint64_t steps = event.step - begin_;
      if (steps % spacing() == 0) {
        asked.push_back(begin((steps / spacing() - 1) % rule_.fragments));
        sent_ = event.step;
        is_under_way_ = true;
        if (rule_.delay == 0) asked.push_back(finish(rule_.outer, rule_.merge));
      }
    }
    if (event.point == SyncPoint::ended) {
      if (is_under_way_) asked.push_back(finish({}, 1));
      for (std::size_t fragment = 0; fragment < rule_.fragments; ++fragment) {
        asked.push_back(begin(fragment));
        asked.push_back({.what = SyncAction::What::finish_fragment, .fragment = fragment});
      }
    }
    return asked;
  }

  std::vector<double> save() const override {
    return {static_cast<double>(sent_), static_cast<double>(fragment_), is_under_way_ ? 1.0 : 0.0,
            static_cast<double>(begin_)};
  }
  void restore(std::span<const double> kept) override {
    if (kept.size() != 4 || !(kept[0] >= 0) || !(kept[1] >= 0 && kept[1] < static_cast<double>(rule_.fragments)) ||
        !(kept[3] >= 0))
      throw Error(ErrorKind::config, "what the checkpoint kept for the policy '" + spec_ +
                                         "' is of another one; resume with the --sync that it was saved with");
    sent_ = static_cast<std::uint64_t>(kept[0]);
    fragment_ = static_cast<std::size_t>(kept[1]);
    is_under_way_ = kept[2] != 0;
    begin_ = static_cast<std::uint64_t>(kept[3]);
  }

 private:
  std::uint64_t spacing() const { return rule_.period / rule_.fragments; }
  SyncAction begin(std::size_t fragment) {
    fragment_ = fragment;
    return {.what = SyncAction::What::begin_fragment, .fragment = fragment};
  }
  SyncAction finish(const OuterStep& outer, double merge) {
    is_under_way_ = false;
    return {.what = SyncAction::What::finish_fragment, .outer = outer, .fragment = fragment_, .merge = merge};
  }

  const std::string spec_;
  const StreamingRule rule_;
  const bool is_alone_;  // nobody to average with
  const std::vector<std::string> levels_{std::string(everybody)};
  std::uint64_t begin_;       // steps before fragments are counted
  std::uint64_t sent_ = 0;    // the step behind which the last fragment was sent
  std::size_t fragment_ = 0;  // which that was
  bool is_under_way_ = false;
};

}  // namespace

std::unique_ptr<SyncPolicy> streaming(std::string_view spec, const StageSpec& stage, const SyncContext& context) {
  Parameters parameters(stage);
  StreamingRule rule;
  rule.period = parameters.count("", 30, 1, longest_period);
  rule.outer = nesterov(parameters);
  rule.fragments = parameters.count("fragments", 1, 1, 1'000'000);
  rule.delay = parameters.count("delay", 0, 0, longest_period);
  rule.merge = parameters.number("merge", 0, 0, 1);
  parameters.end();
  if (rule.period % rule.fragments != 0)
    throw Error(ErrorKind::usage, fmt::format("'{}' sends a fragment every {} / {} steps, which is no whole number; "
                                              "name as many fragments as divide the period",
                                              spec, rule.period, rule.fragments));
  if (rule.delay >= rule.period / rule.fragments)
    throw Error(ErrorKind::usage, fmt::format("'{}' sends a fragment every {} steps; a delay has to be less, so that "
                                              "one is there before the next one leaves",
                                              spec, rule.period / rule.fragments));
  return std::make_unique<StreamingPolicy>(spec, rule, context);
}

}  // namespace ranvier::sync
