// What stands in front of the first bytes that one rank sends another in an operation. The receiver compares it with
// its own before it uses any data, so that ranks that disagree are told so instead of summing garbage.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "ranvier/types.h"

namespace ranvier::engine {

// 24 bytes: with up to 32 bytes of payload and the ring's own 8 it fits in one cache line, so that the smallest
// operations cost one line transfer each way. Sent in host byte order: a job's machines are of one architecture, and
// the handshake of every transport checks it.
struct MessageHeader {
  std::uint32_t sequence = 0;  // how many collectives of this communicator came before
  Epoch epoch = 0;
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t algorithm = 0;   // index in algorithms()
  std::uint8_t slice_log2 = 0;  // slices of different sizes would arrive in different orders; and see urgent
  std::uint8_t dims = 0;        // a hash of what the algorithm was given behind its name; 0: nothing
  Rank root = 0;
  std::uint64_t size = 0;  // all_reduce, reduce, broadcast: elements of the vector; else of this link: size_on_link

  static constexpr std::uint8_t urgent = 0x80;  // in slice_log2: the operation has the urgent lane

  friend bool operator==(const MessageHeader& a, const MessageHeader& b) {
    return std::memcmp(&a, &b, sizeof(MessageHeader)) == 0;
  }
};
static_assert(sizeof(MessageHeader) == 24 && std::has_unique_object_representations_v<MessageHeader>);

// What `self` gets told when `peer` does something else than it does.
Error disagreement(Rank self, const MessageHeader& ours, Rank peer, const MessageHeader& theirs);

// In front of each send/recv message.
struct TagHeader {
  Epoch epoch = 0;
  Collective collective = Collective::send;
  DType dtype = DType::u8;
  std::uint32_t reserved = 0;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(TagHeader) == 24 && std::has_unique_object_representations_v<TagHeader>);

}  // namespace ranvier::engine
