// Which algorithm "auto" runs: of all that could serve, the one of the lowest predicted cost.
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

struct SelectionSettings {
  Rank world = 1;
  std::string transport;
  LinkModel links;
  std::size_t slice_bytes = 1;
  std::shared_ptr<const Topology> topology = {};  // null: every rank reaches every other one
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
  // programs of all candidates. Thread-safe; the result stays.
  const std::vector<TuningRow>& rows(Collective);
  // Of these, for vectors of one size. Thread-safe; the result stays.
  const std::string& choice(Collective, std::size_t bytes);
  // Whether they keep to the links of the topology; else, where none does, ranks have to forward for others.
  // Thread-safe.
  bool keeps_to_links(Collective);
  // All candidates for vectors of one size, the one that it would take first. Thread-safe.
  std::vector<Prediction> ranked(Collective, std::size_t bytes);

 private:
  struct Candidate {
    std::string name;
    ScheduleCost cost;
    bool lends;  // also in place
  };
  struct Candidates {
    bool keep_to_links = true;
    std::vector<Candidate> all;
  };
  // What a candidate is ranked by: whether it copies where others lend, and then its seconds.
  using Price = std::pair<bool, double>;

  const Candidates& candidates_for(Collective);
  Price price(const Candidate&, Collective, std::size_t bytes) const;
  std::vector<TuningRow> make(Collective);

  const SelectionSettings settings_;
  std::mutex mutex_;
  std::map<Collective, Candidates> candidates_;
  std::map<Collective, std::vector<TuningRow>> rows_;
};

// For parts of different sizes without a root, which only some algorithms serve and of which ranks know only those that
// they exchange: their sizes do not count.
std::string_view select_for_uneven(Collective, Rank world);

}  // namespace ranvier::engine
