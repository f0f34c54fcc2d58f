// Which algorithm is the fastest where: a table that people can read and edit. `ranvier bench --tune` writes one from
// what it timed; every Communicator fills one from a model of its links, and follows it where it was given no other
// rows (docs/algorithms.md).
//
//   # collective   transport  ranks  up to  algorithm
//   all_reduce     tcp        4      32K    one_round
//   all_reduce     tcp        4      64K    auto                 # as if there were no row
//   all_reduce     tcp        4      max    ring      learned    # by an earlier run, see CommunicatorOptions::learn
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/schedule.h"
#include "ranvier/types.h"

namespace ranvier {

struct TuningRow {
  static constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  static constexpr std::string_view automatic = "auto";

  Collective collective = Collective::all_reduce;
  std::string transport;  // "shm", "tcp"
  Rank ranks = 1;
  std::size_t up_to = max;  // bytes of the longest buffer of a rank, as `ranvier bench` counts sizes
  std::string algorithm;    // as parse_algorithm takes it, or `automatic`: the model of the links chooses
  bool learned = false;     // by a run, and neither by `ranvier bench --tune` nor by a person

  friend bool operator==(const TuningRow&, const TuningRow&) = default;
};

// Whether a table's rows of one stand in the place of those of the other: they differ in sizes and algorithms at most.
bool same_kind(const TuningRow& a, const TuningRow& b);

// What is fastest at one size.
struct Fastest {
  std::size_t bytes = 0;
  std::string algorithm;
};
// Rising sizes as rows like `kind`: neighbouring sizes of one algorithm become one row; where the algorithm changes,
// the border is the geometric mean.
std::vector<TuningRow> rows_of(const std::vector<Fastest>& found, const TuningRow& kind);
// `rows`, which are of one kind, cover all sizes and rise, with `row` in the place of what they say of the sizes from
// `from` up to its own.
std::vector<TuningRow> overlaid(const std::vector<TuningRow>& rows, std::size_t from, const TuningRow& row);

class TuningTable {
 public:
  // Throws Error{config} naming `source` and the line for whatever makes no sense: an unknown name, an algorithm that
  // does not build the collective or not for that world, sizes that do not rise. neighbor_exchange has no rows: its
  // grid is what a call means, and nothing to choose.
  static TuningTable parse(std::string_view text, std::string_view source);
  // The same for a file; Error{config} also where it cannot be read.
  static TuningTable read(const std::filesystem::path& file);
  std::string text() const;

  // Puts `rows` in the place of all that are for their collective, transport and number of ranks. Rows of one such kind
  // stand together, sizes rising.
  void replace(const std::vector<TuningRow>& rows);
  const std::vector<TuningRow>& rows() const { return rows_; }

  // What the table says; nothing where it has no row for this collective, transport and world, or one of "auto".
  std::optional<AlgorithmSpec> find(Collective, std::string_view transport, Rank world, std::size_t bytes) const;

 private:
  std::vector<TuningRow> rows_;
};

}  // namespace ranvier
