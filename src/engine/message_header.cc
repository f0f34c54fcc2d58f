#include "engine/message_header.h"

#include <fmt/format.h>

#include "ranvier/schedule.h"

namespace ranvier::engine {
namespace {

std::string describe(const MessageHeader& header) {
  return fmt::format(
      "{} #{} of {} {} with size {}, root {} by {}{} (slices of 2^{} bytes, {}epoch {})", name_of(header.collective),
      header.sequence, name_of(header.dtype), name_of(header.op), header.size, header.root,
      header.algorithm < algorithms().size() ? algorithms()[header.algorithm].name : "an unknown algorithm",
      header.dims == 0 ? "" : fmt::format(" with dims of hash {}", header.dims), header.slice_log2 & ~MessageHeader::urgent,
      (header.slice_log2 & MessageHeader::urgent) != 0 ? "urgent, " : "", header.epoch);
}

}  // namespace

Error disagreement(Rank self, const MessageHeader& ours, Rank peer, const MessageHeader& theirs) {
  return {ErrorKind::mismatch,
          fmt::format("the ranks disagree: rank {} runs {}, rank {} runs {}; every rank must call the same "
                      "collectives in the same order with the same sizes and types",
                      self, describe(ours), peer, describe(theirs)),
          peer};
}

}  // namespace ranvier::engine
