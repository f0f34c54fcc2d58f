// Synchronization policies for Python: the state machine itself; what it asks for, ranvier.attach carries out.
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "integrations/torch/errors.h"
#include "ranvier/choose_policy.h"
#include "ranvier/error.h"
#include "ranvier/plan_judge.h"
#include "ranvier/synchronizer.h"

namespace ranvier::pytorch {
namespace {

// What (0 gradients, 1 parameters, 2 begin and 3 finish such an average, 4 push, 5 begin and 6 finish a fragment),
// hops, inside, level, rate, momentum, nesterov, unit, fragment, merge.
using Asked = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, double, bool, double,
                         std::int64_t, double>;

struct PolicyHandle : torch::CustomClassHolder {
  PolicyHandle(const std::string& spec, std::int64_t steps_per_epoch, std::int64_t steps, std::int64_t world,
               std::int64_t begin)
      : policy(translating_errors([&] {
          for (const auto& [name, number] : {std::pair{"steps_per_epoch", steps_per_epoch}, std::pair{"steps", steps}})
            if (number < 0)
              throw Error(ErrorKind::usage, "attach() was given " + std::to_string(number) + " as " + name +
                                                "; give a number of steps, or 0 where it is not known");
          return make_sync_policy(spec, {.steps_per_epoch = static_cast<std::uint64_t>(steps_per_epoch),
                                         .steps = static_cast<std::uint64_t>(steps),
                                         .world = static_cast<std::uint64_t>(world),
                                         .begin = static_cast<std::uint64_t>(begin)});
        })) {}

  std::vector<Asked> react(SyncPoint point, std::int64_t step, double learning_rate, double spread) {
    std::vector<Asked> all;
    for (const SyncAction& each : policy->react({.point = point,
                                  .step = static_cast<std::uint64_t>(step),
                                  .learning_rate = learning_rate,
                                  .spread = spread}))
      all.emplace_back(static_cast<std::int64_t>(each.what), static_cast<std::int64_t>(each.hops),
                       static_cast<std::int64_t>(each.inside), static_cast<std::int64_t>(each.level), each.outer.rate,
                       each.outer.momentum, each.outer.nesterov, each.outer.unit,
                       static_cast<std::int64_t>(each.fragment), each.merge);
    return all;
  }

  // Of level 0, 1, … the group of each rank. `hosts`: by rank.
  std::vector<std::vector<std::int64_t>> levels(const std::string& place,
                                                const std::vector<std::int64_t>& hosts) const {
    const std::vector<std::uint64_t> identities(hosts.begin(), hosts.end());
    std::vector<std::vector<std::int64_t>> all;
    for (const auto& groups : translating_errors([&] { return place_levels(*policy, place, identities); }))
      all.emplace_back(groups.begin(), groups.end());
    return all;
  }

  // By rank.
  void check_samples(const std::vector<double>& samples) const {
    translating_errors([&] { ranvier::check_samples(*policy, samples); });
  }

  const std::unique_ptr<SyncPolicy> policy;
};

using PolicyPtr = c10::intrusive_ptr<PolicyHandle>;

struct JudgeHandle : torch::CustomClassHolder {
  JudgeHandle(const std::string& sync, std::int64_t world, double step_seconds, bool are_unequal)
      : judge(translating_errors(
            [&] { return PlanJudge(sync, static_cast<std::uint64_t>(world), {.step = step_seconds}, are_unequal); })) {}

  PlanJudge judge;
};

using JudgePtr = c10::intrusive_ptr<JudgeHandle>;

// Of steps that all take alike, for samples that each rank has by itself: the policy, and why. `step_seconds`: of each
// rank's computing; late steps and exchanges as PolicySituation has them.
std::tuple<std::string, std::string> choose_in_step(const std::vector<double>& step_seconds, double late_share,
                                                    double late_factor, double late_of,
                                                    const std::vector<std::int64_t>& nodes, double inside_seconds,
                                                    double between_seconds, const std::string& current) {
  PolicySituation now{.late_share = late_share,
                      .late_factor = late_factor,
                      .late_of = late_of,
                      .nodes = {nodes.begin(), nodes.end()},
                      .samples = static_cast<double>(step_seconds.size()),
                      .inside_seconds = inside_seconds,
                      .between_seconds = between_seconds,
                      .takes_servers = false,
                      .takes_shares = false};
  for (const double seconds : step_seconds) now.speeds.push_back(1 / seconds);
  const auto choice = translating_errors([&] { return choose_policy(now, {.sync = current}); });
  return {choice.sync, choice.reason};
}

}  // namespace
}  // namespace ranvier::pytorch

TORCH_LIBRARY_FRAGMENT(ranvier, library) {
  using ranvier::SyncPoint;
  using ranvier::pytorch::JudgeHandle;
  using ranvier::pytorch::JudgePtr;
  using ranvier::pytorch::PolicyHandle;
  using ranvier::pytorch::PolicyPtr;
  library.class_<PolicyHandle>("SyncPolicy")
      .def(torch::init<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>())
      .def("levels", &PolicyHandle::levels)
      .def("check_samples",
           [](const PolicyPtr& self, const std::vector<double>& samples) { self->check_samples(samples); })
      .def("gradient_level",
           [](const PolicyPtr& self) { return static_cast<std::int64_t>(self->policy->gradient_level()); })
      .def("averages_parameters", [](const PolicyPtr& self) { return self->policy->averages_parameters(); })
      .def("pushes", [](const PolicyPtr& self) { return self->policy->pushes(); })
      .def("meets_peers", [](const PolicyPtr& self) { return self->policy->meets_peers(); })
      .def("weighs_samples", [](const PolicyPtr& self) { return self->policy->weighs_samples(); })
      .def("wants_spread", [](const PolicyPtr& self) { return self->policy->wants_spread(); })
      .def("outer_follows_rate", [](const PolicyPtr& self) { return self->policy->outer_follows_rate(); })
      .def("has_outer_step", [](const PolicyPtr& self) { return self->policy->has_outer_step(); })
      .def("outer_gain", [](const PolicyPtr& self) { return self->policy->outer_gain(); })
      .def("delays_averages", [](const PolicyPtr& self) { return self->policy->delays_averages(); })
      .def("fragments", [](const PolicyPtr& self) { return static_cast<std::int64_t>(self->policy->fragments()); })
      .def("step_begins", [](const PolicyPtr& self,
                             std::int64_t complete) { return self->react(SyncPoint::step_begins, complete, 1, 0); })
      .def("step_ended", [](const PolicyPtr& self, std::int64_t complete,
                            double rate) { return self->react(SyncPoint::step_ended, complete, rate, 0); })
      .def("averaged", [](const PolicyPtr& self, std::int64_t complete,
                          double spread) { self->react(SyncPoint::averaged, complete, 1, spread); })
      .def("ended", [](const PolicyPtr& self) { return self->react(SyncPoint::ended, 0, 1, 0); })
      .def("save", [](const PolicyPtr& self) { return self->policy->save(); })
      .def("restore", [](const PolicyPtr& self, const std::vector<double>& kept) {
        ranvier::pytorch::translating_errors([&] { self->policy->restore(kept); });
      });
  library.class_<JudgeHandle>("PlanJudge")
      .def(torch::init<std::string, std::int64_t, double, bool>())
      .def("is_due",
           [](const JudgePtr& self, std::int64_t steps) { return self->judge.is_due(static_cast<std::size_t>(steps)); })
      .def("window", [](const JudgePtr& self) { return static_cast<std::int64_t>(self->judge.window()); })
      .def("by_median", [](const JudgePtr& self) { return self->judge.by_median(); })
      .def("is_wrong", [](const JudgePtr& self, double seconds) { return self->judge.is_wrong({.step = seconds}); })
      .def("expected", [](const JudgePtr& self) { return self->judge.expected().step; })
      .def("expect", [](const JudgePtr& self, double seconds) { self->judge.expect({.step = seconds}); })
      .def("changes", [](const JudgePtr& self) { return static_cast<std::int64_t>(self->judge.changes()); })
      .def("set_changes", [](const JudgePtr& self, std::int64_t changes) {
        self->judge.set_changes(static_cast<std::size_t>(changes));
      });
  library.def("chosen_by_measuring(str sync) -> bool", [](const std::string& sync) {
    return ranvier::pytorch::translating_errors([&] { return ranvier::check_sync_policy_or_auto(sync); });
  });
  library.def("cut_into_fragments(int[] sizes, int count) -> int[]",
              [](const std::vector<std::int64_t>& sizes, std::int64_t count) {
                const auto parts = ranvier::pytorch::translating_errors([&] {
                  return ranvier::cut_into_fragments(std::vector<std::size_t>(sizes.begin(), sizes.end()),
                                                     static_cast<std::size_t>(count));
                });
                return std::vector<std::int64_t>(parts.begin(), parts.end());
              });
  library.def("host_number(str node) -> int",
              [](const std::string& node) { return static_cast<std::int64_t>(ranvier::host_number(node)); });
  library.def(
      "choose_in_step(float[] step_seconds, float late_share, float late_factor, float late_of, int[] nodes, "
      "float inside_seconds, float between_seconds, str current) -> (str, str)",
      [](const std::vector<double>& step_seconds, double late_share, double late_factor, double late_of,
         const std::vector<std::int64_t>& nodes, double inside_seconds, double between_seconds,
         const std::string& current) {
        return ranvier::pytorch::choose_in_step(step_seconds, late_share, late_factor, late_of, nodes, inside_seconds,
                                                between_seconds, current);
      });
}
