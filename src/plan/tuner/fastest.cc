// The fastest algorithm at each size.
#include <algorithm>
#include <limits>

#include "plan/simulate/collective_times.h"
#include "plan/tuner/possible.h"

namespace ranvier {
namespace {

class Table {
 public:
  Table(const Topology& topology, const std::vector<std::string>& algorithms, const SimulateOptions& options)
      : undivided_{.name = "all ranks"}, times_(undivided_, topology, options), algorithms_(algorithms) {}

  void extend(std::size_t bytes) {
    const std::size_t best = fastest({.collective = Collective::all_reduce, .bytes = static_cast<double>(bytes)});
    const FastestAlgorithm row{bytes, algorithms_[best], least_ns_};
    if (!rows_.empty() && rows_.back().algorithm == row.algorithm)
      rows_.back() = row;
    else
      rows_.push_back(row);
  }

  bool is_empty() const { return rows_.empty(); }

  std::vector<FastestAlgorithm> finished() {
    if (rows_.empty()) plan::refuse_all(refusal_);
    rows_.back().up_to = std::numeric_limits<std::size_t>::max();
    return std::move(rows_);
  }

 private:
  struct Candidate {
    std::size_t place;  // in `algorithms`
    double least_ns;
  };

  std::vector<Candidate> candidates(const Communication& what) {
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < algorithms_.size(); ++i)
      if (const auto least = plan::if_possible([&] { return times_.at_least(what, algorithms_[i]).ns; }, refusal_))
        all.push_back({i, *least});
    // What was the fastest at half of the size is tried first: most others are slower than it by their bounds.
    std::ranges::stable_sort(all, {}, [&](const Candidate& each) {
      return !rows_.empty() && algorithms_[each.place] == rows_.back().algorithm ? -1 : each.least_ns;
    });
    return all;
  }

  // Its place, and how long it takes in `least_ns_`.
  std::size_t fastest(const Communication& what) {
    std::optional<std::size_t> best;
    least_ns_ = std::numeric_limits<double>::infinity();
    for (const Candidate& each : candidates(what)) {
      if (each.least_ns > least_ns_ * (1 + 1e-9)) continue;
      std::optional<double> ns;
      try {
        ns = plan::if_possible([&] { return times_.run(what, algorithms_[each.place]).ns; }, refusal_);
      } catch (const Error& ended) {
        if (ended.kind() != ErrorKind::timeout || !best) throw;
        break;  // the most promising ones are known
      }
      // As fast within rounding: the earlier one in the list stays.
      if (!ns || *ns > least_ns_ * (1 + 1e-9) || (*ns >= least_ns_ * (1 - 1e-9) && best && *best < each.place))
        continue;
      best = each.place;
      least_ns_ = std::min(least_ns_, *ns);
    }
    if (!best) plan::refuse_all(refusal_);
    return *best;
  }

  const Workload undivided_;
  plan::CollectiveTimes times_;
  const std::vector<std::string>& algorithms_;
  std::string refusal_ = "none was named";
  double least_ns_ = 0;
  std::vector<FastestAlgorithm> rows_;
};

}  // namespace

std::vector<FastestAlgorithm> fastest_algorithms(const Topology& topology, const std::vector<std::string>& algorithms,
                                                 std::size_t most_bytes, const SimulateOptions& options) {
  constexpr std::size_t least_bytes = 4;
  Table table(topology, algorithms, options);
  try {
    for (std::size_t bytes = least_bytes; bytes <= most_bytes; bytes *= 2) table.extend(bytes);
  } catch (const Error& ended) {
    if (ended.kind() != ErrorKind::timeout || table.is_empty()) throw;
  }
  return table.finished();
}

}  // namespace ranvier
