#include "engine/message_header.h"

#include <fmt/format.h>

#include "engine/request.h"
#include "ranvier/schedule.h"

namespace ranvier::engine {
namespace {

std::string_view algorithm_of(const MessageHeader& header) {
  if (header.algorithm == MessageHeader::bounded_loss) return "bounded loss";
  return header.algorithm < algorithms().size() ? algorithms()[header.algorithm].name : "an unknown algorithm";
}

std::string describe(const MessageHeader& header, const RankNames& rank) {
  // Types and sizes of a part of a composite call are not the caller's.
  const std::string vector =
      is_composite(header.collective)
          ? ""
          : fmt::format(" of {} {} with size {}", name_of(header.dtype), name_of(header.op), header.size);
  return fmt::format("{} {}{}{}{} by {}{} (slices of 2^{} bytes, {}epoch {})", call_name(header.collective),
                     call_number(header.sequence), is_agreement(header.label) ? agreement_words : "", vector,
                     has_root(header.collective) ? ", root " + rank.number(header.root) : "", algorithm_of(header),
                     header.dims == 0 ? "" : fmt::format(" with dims of hash {}", header.dims), header.slice_bits(),
                     header.urgency() > 0 ? fmt::format("priority {}, ", header.urgency()) : "", header.epoch);
}

bool differ(unsigned a, unsigned b) { return a != b && a != 0 && b != 0; }

std::string length_of(const CallLabel& label) { return label.list == 255 ? "255 or more" : std::to_string(label.list); }

}  // namespace

std::string_view call_name(Collective collective) {
  if (collective == as_collective(Composite::sparse_all_reduce)) return "sparse_all_reduce";
  if (collective == as_collective(Composite::monitored_barrier)) return "monitored_barrier";
  return name_of(collective);
}

std::string call_number(std::uint32_t sequence) {
  return sequence < first_of_meeting ? fmt::format("#{}", sequence)
                                     : fmt::format("#{} of the meeting", sequence - first_of_meeting);
}

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
  return {ErrorKind::mismatch,
          fmt::format("the ranks disagree: {} runs {}, {} runs {}{}{}; {}", names.rank(self),
                      describe(ours, names.rank), names.rank(peer), describe(theirs, names.rank),
                      label_difference(self, ours.label, peer, theirs.label, names), past, advice),
          peer};
}

}  // namespace ranvier::engine
