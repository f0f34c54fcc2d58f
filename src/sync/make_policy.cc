#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/spec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "sync/periodic.h"

namespace ranvier {
namespace {

using sync::Entry;

constexpr std::array entries{
    Entry{{"bsp", "everybody's gradients are averaged in every step", "", "Valiant 1990"}, sync::bsp},
    Entry{{"local", "each worker by itself, parameters are averaged every so many steps",
           "value: steps (an epoch); delay=0: steps an average may take; adapt=0: lengthen while the spread is below; "
           "most=an epoch",
           "Stich 2019"},
          sync::local},
    Entry{{"post-local", "bsp at first, then local",
           "value: steps (16); after=0.5: share of training, of all its epochs", "Lin et al. 2020"},
          sync::post_local},
    Entry{{"node", "gradients are averaged inside a node, parameters between nodes every so many steps",
           "value: steps (an epoch); delay=0: steps an average may take", "Moreno-Álvarez et al. 2023"},
          sync::node},
    Entry{{"hierarchy", "a period for each level; those of period 1 average gradients",
           "node=1,rack=8,world=64: any names, from the inside out; delay=0: steps an average of the last may take",
           "Lin et al. 2020"},
          sync::hierarchy},
    Entry{{"slowmo", "local, and momentum over its averages", "value: steps (48); rate=1; momentum=0.2",
           "Wang et al. 2020"},
          sync::slowmo},
    Entry{{"diloco", "local, and Nesterov's momentum over its averages",
           "value: steps (30); rate=0.7; momentum=0.9; fragments=1: that travel by themselves; delay=0: steps they may "
           "take; merge=0: share of what replicas made of them meanwhile",
           "Douillard et al. 2023, 2025"},
          nullptr,
          sync::diloco},
    Entry{{"gossip", "each by itself, and half of its parameters go to one peer after every step", "",
           "Assran et al. 2019"},
          nullptr,
          sync::gossip},
    Entry{
        {"ad-psgd", "each at its own pace, and after every step the mean with one random peer", "", "Lian et al. 2018"},
        nullptr,
        sync::ad_psgd},
    Entry{{"async", "gradients go to parameter servers as they come, and nobody waits",
           "staleness=1: stale gradients count less; compensate=0: for what they have missed; servers=0: ranks that do "
           "nothing else; ranges=0: of the parameters, which servers own in turn",
           "Dean et al. 2012"},
          nullptr,
          sync::async},
    Entry{{"ssp", "async, but none runs more than so many steps ahead of the slowest",
           "value: steps (3); staleness=1; compensate=0; servers=0; ranges=0", "Ho et al. 2013"},
          nullptr,
          sync::ssp},
    Entry{{"group", "workers of similar speed average gradients, their groups push to parameter servers",
           "value: ratio of speeds (1.3) where groups part; largest=0: workers in a group; servers=0",
           "Jiang et al. 2019"},
          nullptr,
          sync::group},
};

constexpr auto names = [] {
  std::array<std::string_view, entries.size()> list;
  for (std::size_t i = 0; i < entries.size(); ++i) list[i] = entries[i].info.name;
  return list;
}();

constexpr auto infos = [] {
  std::array<SyncPolicyInfo, entries.size()> list;
  for (std::size_t i = 0; i < entries.size(); ++i) list[i] = entries[i].info;
  return list;
}();

const Entry* find_entry(std::string_view name) {
  const auto entry = std::ranges::find(entries, name, [](const Entry& each) { return each.info.name; });
  return entry == entries.end() ? nullptr : &*entry;
}

}  // namespace

std::unique_ptr<SyncPolicy> make_sync_policy(std::string_view spec, const SyncContext& context) {
  const auto stages = parse_spec(spec);
  const StageSpec& stage = stages.front();
  const Entry* const entry = find_entry(stage.name);
  if (entry == nullptr && stage.name == chosen_by_measuring)
    throw Error(ErrorKind::usage, fmt::format("the policy '{}' is chosen by measuring while ranvier train trains; name "
                                              "one here, such as bsp or local:16",
                                              chosen_by_measuring));
  if (entry == nullptr) throw Error(ErrorKind::usage, unknown_name("synchronization policy", stage.name, names));
  if (stages.size() > 1)
    throw Error(ErrorKind::usage, fmt::format("the policy '{}' has more than one stage; what compresses its exchanges "
                                              "is --compress, or compress= in Python, apart from it",
                                              spec));
  if (entry->policy != nullptr) return entry->policy(spec, stage, context);
  return sync::periodic_policy(spec, entry->rule(stage, context), context);
}

void check_sync_policy(std::string_view spec) {
  make_sync_policy(spec, {.steps_per_epoch = sync::longest_period, .steps = sync::longest_period});
}

bool check_sync_policy_or_auto(std::string_view spec) {
  const StageSpec stage = parse_spec(spec).front();
  if (stage.name == chosen_by_measuring) {
    if (spec != chosen_by_measuring)
      throw Error(ErrorKind::usage, fmt::format("the policy '{}' takes no value and no settings, it chooses by "
                                                "measuring; write it without '{}'",
                                                chosen_by_measuring, spec.substr(chosen_by_measuring.size())));
    return true;
  }
  if (find_entry(stage.name) == nullptr) {
    std::vector<std::string_view> all(names.begin(), names.end());
    all.push_back(chosen_by_measuring);
    throw Error(ErrorKind::usage, unknown_name("synchronization policy", stage.name, all));
  }
  check_sync_policy(spec);
  return false;
}

std::span<const SyncPolicyInfo> sync_policies() { return infos; }

}  // namespace ranvier
