// Which algorithm "auto" runs: of all that could serve, the one of the lowest predicted cost, or what was the fastest
// of those that were tried.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/cost.h"
#include "ranvier/schedule.h"
#include "ranvier/topology.h"
#include "ranvier/tuning.h"

namespace ranvier::engine {

// What an algorithm took for vectors of one size, on the slowest rank.
struct Trial {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // a power of two
  std::string algorithm;
  double seconds = 0;
};

struct SelectionSettings {
  Rank world = 1;
  Rank ranks_per_node = 0;   // see ScheduleCost
  bool on_one_host = false;  // all ranks
  std::string transport;
  LinkModel links;
  std::size_t slice_bytes = 1;
  std::shared_ptr<const Topology> topology = {};  // null: every rank reaches every other one
  std::vector<Trial> trials = {};
};

struct Prediction {
  std::string algorithm;
  double seconds = 0;
};

class Selection {
 public:
  explicit Selection(SelectionSettings settings) : settings_(std::move(settings)) {}

  const SelectionSettings& settings() const { return settings_; }

  // What a tuning table would say for this world. Made at the first call for each collective, which counts through the
  // programs of all candidates; on a topology, for each root. Thread-safe; the result stays.
  const std::vector<TuningRow>& rows(Collective, Rank root = 0);
  // Of these, for vectors of one size. Thread-safe; the result stays.
  const std::string& choice(Collective, std::size_t bytes, Rank root = 0);
  // For parts of different sizes without a root, `bytes` in all, which only some algorithms serve. Thread-safe.
  std::string choice_for_uneven(Collective, std::size_t bytes);
  // Whether they keep to the links of the topology; else, where none does, ranks have to forward for others.
  // Thread-safe.
  bool keeps_to_links(Collective, Rank root = 0);
  // All candidates for vectors of one size, the cheapest first; where some were tried, these, and what they took.
  // Thread-safe.
  std::vector<Prediction> ranked(Collective, std::size_t bytes);
  // Of these the ones that come near the first. Thread-safe.
  std::vector<Prediction> contenders(Collective, std::size_t bytes);

 private:
  struct Candidate {
    std::string name;
    ScheduleCost cost;
    bool lends;  // also in place
    // What it took times longer than predicted where the largest vectors were tried, and above which size that counts.
    double error = 1;
    std::size_t corrected_above = TuningRow::max;
  };
  struct Candidates {
    bool keep_to_links = true;
    std::vector<Candidate> all;
  };
  // What a candidate is ranked by: whether it copies where others lend, and then its seconds.
  using Price = std::pair<bool, double>;

  // What is counted through once. From another root a schedule has the same cost, but not the same links.
  using Kind = std::pair<Collective, Rank>;

  Kind kind_of(Collective, Rank root) const;
  const Candidates& candidates_for(Kind);
  std::vector<Trial> trials_of(Collective, std::size_t bytes) const;
  std::size_t largest_tried(Collective) const;
  void correct(Collective, std::vector<Candidate>&) const;
  bool is_among_many_in_memory() const;
  bool parts_fill_caches(Collective, std::size_t bytes) const;
  bool rings_stay_in_caches(Collective, std::size_t bytes) const;
  Price price(const Candidate&, Collective, std::size_t bytes) const;
  std::vector<std::pair<Price, const Candidate*>> by_price(Collective, std::size_t bytes);
  const Candidate* usual(const std::vector<Candidate>&, Collective, std::size_t bytes) const;
  const Candidate* cheapest(const std::vector<Candidate>&, Collective, std::size_t bytes, const Candidate* last) const;
  const Candidate* fastest(const std::vector<Candidate>&, Collective, std::size_t bytes, const Candidate* last,
                           const Candidate* cheapest) const;
  std::vector<TuningRow> make(Kind);

  const SelectionSettings settings_;
  std::mutex mutex_;
  std::map<Kind, Candidates> candidates_;
  std::map<Kind, std::vector<TuningRow>> rows_;
};

}  // namespace ranvier::engine
