// Which chunks the buffers of each rank hold, and where they lie.
#include <algorithm>

#include "ranvier/schedule.h"

namespace ranvier {
namespace {

// `parts` extents one behind another that share `count` elements, the first ones getting one more where it does not
// come out even.
std::vector<Extent> split(std::size_t count, std::size_t parts, std::size_t element_bytes) {
  std::vector<Extent> extents(parts);
  std::size_t offset = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t elements = count / parts + (part < count % parts ? 1 : 0);
    extents[part] = {offset, elements * element_bytes};
    offset += extents[part].bytes;
  }
  return extents;
}

}  // namespace

std::uint32_t input_chunks(const Schedule& schedule, Rank rank) {
  switch (schedule.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return rank == schedule.root ? schedule.chunks : 0;
    case Collective::all_gather:
    case Collective::gather:
      return 1;
    default:
      return schedule.chunks;
  }
}

std::uint32_t output_chunks(const Schedule& schedule, Rank rank) {
  switch (schedule.collective) {
    case Collective::reduce:
    case Collective::gather:
      return rank == schedule.root ? schedule.chunks : 0;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return 1;
    default:
      return schedule.chunks;
  }
}

Layout even_layout(const Schedule& schedule, Rank rank, std::size_t count, std::size_t element_bytes) {
  const bool whole = moves_whole_vector(schedule.collective);
  const auto buffer = [&](std::uint32_t chunks) {
    return chunks == 0 ? std::vector<Extent>{} : split(whole ? count : count * chunks, chunks, element_bytes);
  };
  return {buffer(input_chunks(schedule, rank)), buffer(output_chunks(schedule, rank))};
}

InPlace in_place_offset(const Schedule& schedule, Rank rank, const Layout& layout) {
  const auto own = static_cast<std::size_t>(rank);
  InPlace offset;
  switch (schedule.collective) {
    case Collective::all_gather:
    case Collective::gather:
      if (own < layout.output.size()) offset.input_in_output = layout.output[own].offset;
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      if (own < layout.input.size()) offset.output_in_input = layout.input[own].offset;
      break;
    default:
      break;
  }
  return offset;
}

}  // namespace ranvier
