#include "schedule/memory_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ranvier/error.h"

namespace ranvier::schedule_detail {
namespace {

constexpr std::uint32_t unused = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t most_slots = 64;  // far beyond any program; a wrong one must not eat the memory

constexpr std::string_view name_of_buffer(Buffer buffer) {
  return buffer == Buffer::input ? "input" : buffer == Buffer::output ? "output" : "scratch";
}

}  // namespace

MemoryMap::MemoryMap(const Schedule& schedule, Rank rank, const Layout& layout, std::span<const Step> steps,
                     std::size_t slice_bytes, bool in_place)
    : rank_(rank),
      slice_(slice_bytes),
      chunks_(schedule.chunks),
      input_(map(layout.input)),
      output_(map(layout.output)) {
  if (in_place) overlay(schedule, layout);
  lay_out_scratch(steps, layout.parts);
}

std::uint32_t MemoryMap::cells_of(std::size_t bytes) const {
  return std::max(static_cast<std::uint32_t>((bytes + slice_ - 1) / slice_), 1u);
}

std::vector<Region> MemoryMap::map(const std::vector<Extent>& extents) {
  std::vector<Region> regions;
  regions.reserve(extents.size());
  for (const Extent& extent : extents) {
    if (!regions.empty() && extent.offset != regions.back().offset + regions.back().bytes)
      throw Error(
          ErrorKind::internal,
          fmt::format("chunk {} of a buffer of rank {} begins at byte {}, but chunk {} ends at byte {}; chunks lie "
                      "one behind another",
                      regions.size(), rank_, extent.offset, regions.size() - 1,
                      regions.back().offset + regions.back().bytes));
    regions.push_back({extent.offset, extent.bytes, cells_});
    cells_ += cells_of(extent.bytes);
  }
  return regions;
}

// Gives chunks of input and output that are the same memory the same cells.
void MemoryMap::overlay(const Schedule& schedule, const Layout& layout) {
  if (input_.empty() || output_.empty()) return;
  // What comes from a neighbour would need the place of what is still to go there.
  if (schedule.collective == Collective::neighbor_exchange)
    throw Error(ErrorKind::usage, "neighbor_exchange does not work in place; pass separate memory for the output");
  const auto own = static_cast<std::size_t>(rank_);
  const bool in_output = schedule.collective == Collective::all_gather || schedule.collective == Collective::gather;
  const bool in_input = schedule.collective == Collective::reduce_scatter || schedule.collective == Collective::scatter;
  const InPlace offset = in_place_offset(schedule, rank_, layout);
  const auto same = [&](Region& from, std::size_t from_offset, const Region& to, std::size_t to_offset) {
    if (from.bytes != to.bytes || from.offset + from_offset != to.offset + to_offset)
      throw Error(
          ErrorKind::usage,
          fmt::format("an in-place {} needs chunks of input and output that coincide, but on rank {} they have {} "
                      "and {} bytes; pass separate memory for the output",
                      name_of(schedule.collective), rank_, from.bytes, to.bytes));
    from.first_cell = to.first_cell;
  };
  if (in_output) {
    same(input_[0], offset.input_in_output, output_[own], 0);
  } else if (in_input) {
    same(output_[0], offset.output_in_input, input_[own], 0);
  } else {
    for (std::size_t chunk = 0; chunk < std::min(input_.size(), output_.size()); ++chunk)
      same(input_[chunk], 0, output_[chunk], 0);
  }
}

void MemoryMap::lay_out_scratch(std::span<const Step> steps, const std::vector<std::size_t>& parts) {
  const auto use = [&](const Step& step, Place place) {
    if (place.buffer != Buffer::scratch) return;
    const std::uint64_t end = std::uint64_t{place.chunk} + step.chunks;
    if (end > chunks_ || place.slot >= most_slots) return;  // find() tells
    if (scratch_.size() <= place.slot) scratch_.resize(place.slot + std::size_t{1});
    auto& slot = scratch_[place.slot];
    if (slot.empty()) slot.resize(chunks_, Region{.first_cell = unused});
    for (std::uint64_t chunk = place.chunk; chunk < end; ++chunk) slot[chunk].first_cell = 0;
  };
  for (const Step& step : steps) {
    if (step.action != Action::recv) use(step, step.from);
    if (step.action != Action::send) use(step, step.to);
  }
  const auto& sizes = input_.size() >= output_.size() ? input_ : output_;
  for (auto& slot : scratch_)
    for (std::size_t chunk = 0; chunk < slot.size(); ++chunk) {
      Region& region = slot[chunk];
      if (region.first_cell == unused || sizes.empty()) continue;
      const std::size_t bytes = chunk < parts.size()   ? parts[chunk]
                                : chunk < sizes.size() ? sizes[chunk].bytes
                                                       : sizes[0].bytes;
      region = {scratch_bytes_, bytes, cells_};
      scratch_bytes_ += region.bytes;
      cells_ += cells_of(region.bytes);
    }
}

const Region& MemoryMap::find(const Step& step, Place place, std::uint32_t i) const {
  static const std::vector<Region> none;
  const std::vector<Region>& regions = place.buffer == Buffer::input    ? input_
                                       : place.buffer == Buffer::output ? output_
                                       : place.slot < scratch_.size()   ? scratch_[place.slot]
                                                                        : none;
  const std::uint64_t chunk = std::uint64_t{place.chunk} + i;
  if (chunk >= regions.size())
    throw Error(ErrorKind::internal,
                fmt::format("the program of rank {} is wrong: in round {} it names {} chunk {}, but there are {}",
                            rank_, step.round, name_of_buffer(place.buffer), chunk, regions.size()));
  return regions[chunk];
}

}  // namespace ranvier::schedule_detail
