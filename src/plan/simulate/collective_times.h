// How long the collectives of divided models take on one network: each is simulated once, whoever asks for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plan/simulate/groups.h"
#include "plan/simulate/instance.h"
#include "plan/simulate/overlap.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {

// Of a schedule with chunks of so many elements. Long ones stream: once the pipeline is full, each further slice takes
// as long as the one before it. Four lengths whose times are on a line therefore say that of all longer ones; where
// they are not, longer ones are tried. What is on no line is simulated whole, or, where that is too much, taken from a
// line through the longest two that are not: some percent.
// `symmetry`: of this schedule on this topology, where more lengths are asked for.
SimulatedRun streamed(const Schedule&, const Topology&, std::size_t chunk_elements, std::size_t element_bytes,
                      const SimulateOptions&, Symmetry* symmetry = nullptr);

class CollectiveTimes {
 public:
  // Both outlive it. `averaging`: who averages gradients, in place of all that have the same part of the model. Throws
  // Error{usage} where the degrees of the workload do not multiply to the world.
  CollectiveTimes(const Workload&, const Topology&, const SimulateOptions&, std::optional<RankGroups> averaging = {});

  bool has_peers(const Communication&) const;
  // The algorithm, without a division that is the data groups' and not one of those that sum this.
  std::string suited(const std::string& algorithm, const Communication&) const;
  const Topology& topology() const { return topology_; }
  const SimulateOptions& options() const { return options_; }
  Rank world() const { return topology_.world; }
  // On links that carried something just before, or rested and have saved up what they may (LinkSpeed::burst_bytes).
  // `algorithm` as parse_algorithm takes it. Throws Error{usage} where it cannot serve the group, or not so many ranks.
  enum class Links { busy, rested };
  // Each length simulated; or only those a fifth apart, between which times are taken from the line through both.
  enum class Lengths { each, some };
  const SimulatedRun& run(const Communication&, const std::string& algorithm, Links links = Links::busy,
                          Lengths lengths = Lengths::each);
  // Of these groups, whatever its role; of a send: to the member so many further.
  const SimulatedRun& run(const Communication&, const Axes&, Rank hops, const std::string& algorithm,
                          Links links = Links::busy);
  // After so long a rest no link saves up more.
  double longest_rest_ns() const { return longest_rest_ns_; }
  // What run() takes at least, without simulating anything: no link carries its load faster than at its rate, and so
  // many messages follow one another that each has a latency. Throws as run() does where the schedule cannot be built.
  struct Least {
    double ns = 0;
    // Of those of this kind, how long each link that may be busiest is busy; the same links whatever their bytes.
    const void* kind = nullptr;
    std::vector<double> links_ns = {};
  };
  Least at_least(const Communication&, const std::string& algorithm);
  Least at_least(const Communication&, const Axes&, Rank hops, const std::string& algorithm);
  // Of several of its runs at the same time.
  SharedRates& rates() { return rates_; }
  // Of several of its runs.
  CommonLinks& common_links() { return common_links_; }

 private:
  struct Kind {
    Schedule schedule;
    std::optional<Topology> topology = {};  // where it sees the network in a way of its own
    std::optional<Topology> without_bursts = {};
    // The least time of a vector of `bytes`: latency, and the slowest of several links.
    struct Line {
      double seconds_of_byte = 0;
      double burst_seconds = 0;
      bool operator<(const Line& other) const { return seconds_of_byte < other.seconds_of_byte; }
    };
    std::vector<Line> links = {};
    // Messages that follow one another, and what each takes at least: on its way, and for each byte.
    double messages = 0;
    double latency_ns = 0;
    double byte_ns = 0;
    bool bounded = false;  // whether what is above is there
    Symmetry symmetry = {};
    Symmetry rested_symmetry = {};
    std::vector<Rank> grid = {};  // as SimulateOptions has it
  };
  struct Who {
    Axes axes = {};
    Rank hops = 1;
    bool in_nodes = false;  // as `averaging` has them, in place of all that
    auto operator<=>(const Who&) const = default;
  };
  using KindKey = std::tuple<std::string, Collective, Who, std::size_t>;  // the last: slices, of switches' sums

  Axes axes_of(Role) const;
  Who who(const Communication&) const;
  Kind& kind(const Communication&, const Who&, const std::string& algorithm);
  Kind made(Collective, const Who&, const std::string& algorithm, std::size_t slices) const;
  const SimulatedRun& run(Kind&, std::size_t chunk_elements, Links, Lengths);
  const SimulatedRun& between_neighbours(Kind&, std::size_t chunk_elements, Links);
  Least at_least(Kind&, const Communication&) const;
  const Topology& network_of(const Kind& kind) const { return kind.topology ? *kind.topology : topology_; }
  void bound(Kind&) const;

  const Topology& topology_;
  const Grid grid_;
  const std::map<Role, Axes> groups_;
  const std::optional<RankGroups> averaging_;
  SimulateOptions options_;
  std::vector<Rank> grid_of_roles_;
  std::map<KindKey, Kind> kinds_;
  std::optional<Topology> without_bursts_;  // of topology_, where it has any
  double longest_rest_ns_ = 0;
  using RunKey = std::tuple<const Kind*, std::size_t, Links>;  // by elements of a chunk
  std::map<RunKey, SimulatedRun> known_;
  std::map<RunKey, SimulatedRun> estimated_;
  CommonLinks common_links_{topology_};
  SharedRates rates_{common_links_};
};

}  // namespace ranvier::plan
