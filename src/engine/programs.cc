#include "engine/programs.h"

#include <algorithm>
#include <bit>

#include "ranvier/transport.h"

namespace ranvier::engine {
namespace {

// Every link takes this much; see TransportTraits::buffered_bytes.
constexpr std::size_t least_buffered = 64;

std::vector<Extent> extents(const std::vector<std::size_t>& elements, std::size_t element_bytes) {
  std::vector<Extent> result;
  std::size_t offset = 0;
  for (const std::size_t count : elements) {
    result.push_back({offset, count * element_bytes});
    offset += count * element_bytes;
  }
  return result;
}

}  // namespace

std::size_t ProgramCache::Hash::operator()(const Shape& shape) const {
  std::size_t hash = shape.count;
  const auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15u; };
  mix(static_cast<std::size_t>(shape.collective) | std::size_t{shape.algorithm} << 8 |
      std::size_t{shape.in_place} << 16 | std::size_t{shape.element_bytes} << 24);
  mix(static_cast<std::size_t>(shape.root));
  for (const Rank size : shape.dims) mix(static_cast<std::size_t>(size));
  for (const bool periodic : shape.periodic) mix(periodic ? 1 : 0);
  for (const std::size_t count : shape.input_splits) mix(count);
  for (const std::size_t count : shape.output_splits) mix(count);
  for (const std::size_t count : shape.parts) mix(count);
  return hash;
}

ReadyProgram ProgramCache::find(const Shape& shape) {
  const std::lock_guard lock(mutex_);
  auto found = programs_.find(shape);
  if (found == programs_.end()) {
    ReadyProgram ready = make(shape);
    if (programs_.size() >= capacity) drop_older_half();
    found = programs_.emplace(shape, Entry{.program = std::move(ready)}).first;
  }
  found->second.used = ++uses_;
  return found->second.program;
}

void ProgramCache::drop_older_half() {
  std::vector<std::uint64_t> used;
  for (const auto& [shape, entry] : programs_) used.push_back(entry.used);
  const auto middle = used.begin() + static_cast<std::ptrdiff_t>(used.size() / 2);
  std::ranges::nth_element(used, middle);
  std::erase_if(programs_, [oldest = *middle](const auto& each) { return each.second.used < oldest; });
}

ReadyProgram ProgramCache::make(const Shape& shape) const {
  const Schedule schedule = algorithms()[shape.algorithm].build({.collective = shape.collective,
                                                                 .world = world_,
                                                                 .root = shape.root,
                                                                 .dims = shape.dims,
                                                                 .periodic = shape.periodic});
  Layout layout = even_layout(schedule, rank_, shape.count, shape.element_bytes);
  if (!shape.input_splits.empty()) layout.input = extents(shape.input_splits, shape.element_bytes);
  if (!shape.output_splits.empty()) layout.output = extents(shape.output_splits, shape.element_bytes);
  for (const std::size_t count : shape.parts) layout.parts.push_back(count * shape.element_bytes);
  ReadyProgram ready;
  ready.slice_bytes = limits_.slice_bytes;
  if (schedule.buffered_in_place && shape.in_place)
    ready.slice_bytes = std::min(limits_.slice_bytes, std::bit_floor(std::max(limits_.buffered_bytes, least_buffered)));
  auto program = std::make_shared<Program>(compile(schedule, rank_, layout,
                                                   {.element_bytes = shape.element_bytes,
                                                    .slice_bytes = ready.slice_bytes,
                                                    .in_place = shape.in_place,
                                                    .unanswered = limits_.unanswered,
                                                    .ahead_bytes = limits_.ahead_bytes,
                                                    .lead_bytes = limits_.lead_bytes}));
  for (const auto& [peer, bytes] : program->bytes_to) {
    ready.bytes_to_send += bytes;
    ready.most_to_one = std::max(ready.most_to_one, bytes);
  }
  for (const auto& [peer, bytes] : program->bytes_from) ready.bytes_to_receive += bytes;
  ready.lends = program->runs_unbuffered && std::ranges::any_of(program->sends, [](const Instruction& send) {
                  return send.bytes >= PeerMemory::least_lent;
                });
  ready.program = std::move(program);
  return ready;
}

}  // namespace ranvier::engine
