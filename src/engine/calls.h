// From a request to what the executor runs: checked, its algorithm chosen, its program compiled. A request that comes
// again, as they all do in training, costs one look-up.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rank_names.h"
#include "base/spin_lock.h"
#include "engine/collective.h"
#include "engine/programs.h"
#include "engine/selection.h"
#include "ranvier/communicator.h"
#include "ranvier/cost.h"
#include "ranvier/topology.h"
#include "ranvier/tuning.h"

namespace ranvier::engine {

// Small numbers for the algorithms that requests name, so that a name is looked up but not parsed again.
class AlgorithmNumbers {
 public:
  using Number = std::uint32_t;
  static constexpr Number unnamed = 0, automatic = 1;

  // `ranks_per_node`: see CallSettings.
  AlgorithmNumbers(Rank world, Rank ranks_per_node) : world_(world), ranks_per_node_(ranks_per_node) {}

  // Thread-safe. Throws Error{usage} for an unknown name, or dims that do not suit the world.
  Number of(std::string_view name);
  // Of a number beyond `automatic`. Thread-safe; the result stays.
  const AlgorithmSpec& operator[](Number);

 private:
  struct Named {
    std::string name;
    AlgorithmSpec spec;
  };
  static constexpr Number first = automatic + 1;

  const Rank world_;
  const Rank ranks_per_node_;
  SpinLock lock_;
  std::deque<Named> named_;  // from number `first` on
};

// All of a request that its call depends on, but for the sizes of uneven parts.
class RequestKey {
 public:
  RequestKey() = default;  // of no request
  RequestKey(const Request&, AlgorithmNumbers::Number algorithm);

  static bool even(const Request& request) { return request.input_splits.empty() && request.output_splits.empty(); }
  // In the high bits.
  std::size_t hash() const;

  friend bool operator==(const RequestKey&, const RequestKey&) = default;

 private:
  static constexpr std::ptrdiff_t apart = std::numeric_limits<std::ptrdiff_t>::max();

  std::size_t input_count_ = 0;
  std::size_t output_count_ = 0;
  std::ptrdiff_t distance_ = 0;  // from output to input where they overlap
  Rank root_ = -1;
  int priority_ = 0;
  AlgorithmNumbers::Number algorithm_ = AlgorithmNumbers::unnamed;
  Collective collective_ = Collective::barrier;
  ReduceOp op_ = ReduceOp::sum;
  DType input_type_ = DType::u8;
  DType output_type_ = DType::u8;
  CallLabel label_;
  Composite part_of_ = Composite::none;
};

// The same on all ranks, but for `rank`.
struct CallSettings {
  Rank rank = 0;
  Rank world = 1;
  Epoch epoch = 0;
  // Consecutive ranks on one host; an algorithm by node takes it that is named without a number. 0: not the same
  // everywhere.
  Rank ranks_per_node = 0;
  bool on_one_host = false;
  std::string algorithm;           // for requests that name none, as AlgorithmSpec; "auto" chooses by size
  TuningTable tuning = {};         // what "auto" looks at first
  LinkModel links = {};            // what it goes by where the table has no row
  std::vector<Trial> trials = {};  // and what it knows besides
  std::string transport = {};      // "shm", "tcp", …
  std::shared_ptr<const Topology> topology = {};  // data keeps to its links; null: every rank reaches every other one
  std::size_t slice_bytes = 0;                    // a power of two
  std::size_t buffered_bytes = 0;                 // the least that a link takes before its receiver reads
  std::size_t ahead_bytes = 0;                    // see CompileOptions
  std::size_t lead_bytes = 0;                     // likewise
  PeerMemory* peer_memory = nullptr;
  AnswersInPlace* answers = nullptr;
  RankNames names = {};
};

class Calls {
 public:
  // Throws Error{usage} for an unknown algorithm, or dims that do not suit the world.
  explicit Calls(CallSettings settings);

  RequestKey key_of(const Request& request) { return {request, algorithms_.of(request.algorithm)}; }
  // Whether the call made for `key` serves `request`.
  bool serves(const RequestKey& key, const Request& request) {
    return RequestKey::even(request) && key == key_of(request);
  }
  // The call of `request`, all but its memory, number and lane. Thread-safe. Throws Error{usage}.
  CollectiveCall prepare(const Request& request);
  // What "auto" follows for a collective: the rows given, else those of the model. Thread-safe.
  std::vector<TuningRow> rows(Collective);
  // What it chooses by where no row was given.
  const std::shared_ptr<Selection>& selection() const { return selection_; }

 private:
  struct Entry {
    RequestKey key;
    std::vector<std::size_t> input_splits, output_splits;
    CollectiveCall call;

    bool is_for(const RequestKey& request_key, const Request& request) const {
      return key == request_key && std::ranges::equal(input_splits, request.input_splits) &&
             std::ranges::equal(output_splits, request.output_splits);
    }
  };
  CollectiveCall make(const Request&);
  AlgorithmSpec choose(const Request&, const Shape&);
  void demand_links(const AlgorithmSpec&, const Shape&, std::string_view remedy);

  const CallSettings settings_;
  AlgorithmNumbers algorithms_;
  std::optional<AlgorithmSpec> own_;  // the algorithm that the settings name
  ProgramCache programs_;
  const std::shared_ptr<Selection> selection_;
  std::mutex links_mutex_;
  std::set<std::pair<std::string, Rank>> on_links_;  // schedules, by root, that keep to the links of the topology
  SpinLock lock_;
  std::array<std::array<Entry, 8>, 16> recent_;  // by hash, the newest first
};

}  // namespace ranvier::engine
