// Where the places of a program lie in a rank's memory, and which of them are the same memory.
#pragma once

#include <span>
#include <vector>

#include "ranvier/schedule.h"

namespace ranvier::schedule_detail {

// One chunk. Its memory is cut into cells, one a slice and at least one a chunk; cells are numbered so that two places
// share a cell exactly if they share memory, and the cells of consecutive chunks of a buffer follow one another.
struct Region {
  std::size_t offset = 0;  // in its buffer
  std::size_t bytes = 0;
  std::uint32_t first_cell = 0;
};

class MemoryMap {
 public:
  // Lays out the scratch that `steps` use, and nothing else. Throws Error{usage} for an in-place call whose input and
  // output chunks do not coincide.
  MemoryMap(const Schedule&, Rank, const Layout&, std::span<const Step> steps, std::size_t slice_bytes, bool in_place);

  // The i-th chunk of `place`. Throws Error{internal} naming `step` if there is no such chunk.
  const Region& find(const Step& step, Place place, std::uint32_t i) const;

  std::size_t scratch_bytes() const { return scratch_bytes_; }
  std::uint32_t cells() const { return cells_; }

 private:
  std::vector<Region> map(const std::vector<Extent>& extents);
  void overlay(const Schedule&, const Layout&);
  void lay_out_scratch(std::span<const Step> steps, const std::vector<std::size_t>& parts);
  std::uint32_t cells_of(std::size_t bytes) const;

  Rank rank_;
  std::size_t slice_;
  std::uint32_t chunks_;
  std::uint32_t cells_ = 0;
  std::vector<Region> input_;
  std::vector<Region> output_;
  std::vector<std::vector<Region>> scratch_;  // by slot, then chunk; unused ones have no cell
  std::size_t scratch_bytes_ = 0;
};

}  // namespace ranvier::schedule_detail
