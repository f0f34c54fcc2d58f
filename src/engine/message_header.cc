#include "engine/message_header.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/request.h"
#include "ranvier/schedule.h"

namespace ranvier::engine {
namespace {

std::string_view algorithm_of(const MessageHeader& header) {
  if (header.algorithm == MessageHeader::bounded_loss) return "bounded loss";
  return header.algorithm < algorithms().size() ? algorithms()[header.algorithm].name : "an unknown algorithm";
}

// What `header`, which is on its way, says of its vector or of its link. `even_nothing`: also that it has no bytes.
std::string size_of_link(const MessageHeader& header, bool even_nothing, const std::string& way) {
  if (has_common_count(header.collective)) return " with " + element_count(header.size);
  if (header.size == 0 && !even_nothing) return "";  // of a rank that waits, which has many links
  if (header.collective == Collective::neighbor_exchange && header.size >> 32 > 0)
    return fmt::format(" with two parts of hash {} {}", header.size, way);
  return fmt::format(" with {} B {}", header.size, way);
}

std::string describe(const MessageHeader& header, bool even_nothing, const std::string& way, const RankNames& rank) {
  std::string vector;
  // Types and sizes of a part of a composite call are not the caller's.
  if (header.collective != Collective::barrier && !is_composite(header.collective))
    vector = fmt::format(" of {}{}", vector_words(header.collective, header.dtype, header.op),
                         size_of_link(header, even_nothing, way));
  const std::string root =
      has_root(header.collective) ? ", root " + rank.number(static_cast<Rank>(header.root_or_dims)) : "";
  return fmt::format("{} {}{}{}{} by {} (slices of 2^{} bytes, {}epoch {})", call_name(header.collective),
                     call_number(header.sequence), is_agreement(header.label) ? agreement_words : "", vector, root,
                     algorithm_of(header), header.slice_log2,
                     header.urgency > 0 ? fmt::format("priority {}, ", header.urgency) : "", header.epoch);
}

// What is known of dims is whether they are the same.
std::string dims_difference(Rank self, const MessageHeader& ours, Rank peer, const MessageHeader& theirs,
                            const RankNames& rank) {
  const bool comparable = ours.collective == theirs.collective && ours.algorithm == theirs.algorithm;
  if (!comparable || has_root(ours.collective) || ours.root_or_dims == theirs.root_or_dims) return {};
  if (ours.root_or_dims == 0) return fmt::format(", whose dims only {} names", rank(peer));
  if (theirs.root_or_dims == 0) return fmt::format(", whose dims only {} names", rank(self));
  return fmt::format(", and the dims that {} and {} name for it differ", rank(self), rank(peer));
}

bool differ(unsigned a, unsigned b) { return a != b && a != 0 && b != 0; }

std::string length_of(const CallLabel& label) { return label.list == 255 ? "255 or more" : std::to_string(label.list); }

}  // namespace

std::uint32_t hash_of_dims(const std::vector<Rank>& dims, const std::vector<bool>& periodic) {
  if (dims.empty()) return 0;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const bool joined = !periodic.empty() && periodic[i];
    hash = (hash ^ (static_cast<std::uint64_t>(dims[i]) << 1 | (joined ? 1 : 0))) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(hash >> 32, 1));
}

std::string_view call_name(Collective collective) {
  if (collective == as_collective(Composite::sparse_all_reduce)) return "sparse_all_reduce";
  if (collective == as_collective(Composite::monitored_barrier)) return "monitored_barrier";
  return name_of(collective);
}

std::string call_number(std::uint32_t sequence) {
  return sequence < first_of_meeting ? fmt::format("#{}", sequence)
                                     : fmt::format("#{} of the meeting", sequence - first_of_meeting);
}

std::string vector_words(Collective collective, DType dtype, ReduceOp op) {
  return fmt::format("{}{}{}", name_of(dtype), reduces(collective) ? " " : "", reduces(collective) ? name_of(op) : "");
}

std::string element_count(std::uint64_t count) { return fmt::format("{} element{}", count, count == 1 ? "" : "s"); }

std::string label_difference(Rank self, const CallLabel& ours, Rank peer, const CallLabel& theirs, const Names& names) {
  std::string text;
  const auto element = [&](const CallLabel& label) {
    return names.element != nullptr ? names.element(label.element) : fmt::format("element type {}", label.element);
  };
  if (is_agreement(ours) != is_agreement(theirs)) return text;  // which their names say
  if (differ(ours.element, theirs.element))
    text += fmt::format(", {} with elements of {} and {} of {}", names.rank(self), element(ours), names.rank(peer),
                        element(theirs));
  if (differ(ours.list, theirs.list))
    text += fmt::format(", {} as one of a list of {} and {} of a list of {}", names.rank(self), length_of(ours),
                        names.rank(peer), length_of(theirs));
  if (differ(ours.shape, theirs.shape))
    text += fmt::format(", and the shapes of {} and {} differ", names.rank(self), names.rank(peer));
  return text;
}

Error disagreement(Rank self, const MessageHeader& ours, Rank peer, const MessageHeader& theirs, const Names& names,
                   const std::string& before) {
  std::string past;
  // Of calls that differ the past may as well, since a rank that skipped one is late by one: that says nothing more.
  if (alike_but_for_history(ours, theirs)) past = fmt::format("; what they have called before differs: {}", before);
  const bool even_nothing = ours.collective == theirs.collective && ours.size != theirs.size;
  const std::string way = fmt::format("from {} to {}", names.rank(peer), names.rank(self));
  return {ErrorKind::mismatch,
          fmt::format("the ranks disagree: {} runs {}, {} runs {}{}{}{}; {}", names.rank(self),
                      describe(ours, even_nothing, way, names.rank), names.rank(peer),
                      describe(theirs, even_nothing, way, names.rank),
                      dims_difference(self, ours, peer, theirs, names.rank),
                      label_difference(self, ours.label, peer, theirs.label, names), past, advice),
          peer};
}

}  // namespace ranvier::engine
