// What stands in front of the first bytes that one rank sends another in an operation. The receiver compares it with
// its own before it uses any data, so that ranks that disagree are told so instead of summing garbage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/rank_names.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "ranvier/types.h"

namespace ranvier::engine {

// 32 bytes: with up to 24 bytes of payload and the ring's own 8 it fits in one cache line, so that the smallest
// operations cost one line transfer each way. Sent in host byte order: a job's machines are of one architecture, and
// the handshake of every transport checks it.
struct MessageHeader {
  std::uint32_t sequence = 0;  // how many collectives of this communicator came before, …
  std::uint32_t history = 0;   // … and their digest: see CallHistory. Side by side, since both are new in each call
  Epoch epoch = 0;
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t algorithm = 0;   // index in algorithms(), or bounded_loss
  std::uint8_t slice_log2 = 0;  // slices of different sizes would arrive in different orders
  std::uint8_t urgency = 0;     // the class of its priority: urgency_of
  // The root of a collective that has one. Of the others, which alone algorithms with dims build: hash_of_dims.
  std::uint32_t root_or_dims = 0;
  // As the request has it; of uneven gather and scatter, shape is a hash of all parts' sizes. What is 0 on either side
  // is not compared.
  CallLabel label = {};
  std::uint64_t size = 0;  // all_reduce, reduce, broadcast: elements of the vector; else of this link: size_on_link

  // As algorithm: a BoundedOperation, which understands no rank that runs the same all_reduce exactly.
  static constexpr std::uint8_t bounded_loss = 0xFF;

  friend bool operator==(const MessageHeader& a, const MessageHeader& b) {
    return std::memcmp(&a, &b, sizeof(MessageHeader)) == 0;
  }
};
static_assert(sizeof(MessageHeader) == 32 && std::has_unique_object_representations_v<MessageHeader>);

// By which ranks that gave an algorithm different dims, or periods, find out; 0 where none were given. No two grids of
// a world of up to 1024 ranks have the same; with periods one pair of some 2^32 does. A test counts them.
std::uint32_t hash_of_dims(const std::vector<Rank>& dims, const std::vector<bool>& periodic);

// Of an all_reduce that no program called: Learning's, by which ranks agree. Its elements are nobody's.
inline constexpr CallLabel agreement_label{.element = 255};
inline bool is_agreement(const CallLabel& label) { return label.element == agreement_label.element; }
// What errors say of it behind its name.
inline constexpr std::string_view agreement_words =
    " (the ranks agreeing on what auto learned; RANVIER_LEARN=0 leaves it out)";

// Whether they are of one operation: equal, but for parts of a label that one of them has not.
inline bool agree(const MessageHeader& a, const MessageHeader& b) {
  if (a == b) [[likely]]
    return true;
  MessageHeader other = b;
  if (a.label.element == 0 || b.label.element == 0) other.label.element = a.label.element;
  if (a.label.list == 0 || b.label.list == 0) other.label.list = a.label.list;
  if (a.label.shape == 0 || b.label.shape == 0) other.label.shape = a.label.shape;
  return a == other;
}

// Whether they differ in nothing but what their ranks had called before.
inline bool alike_but_for_history(const MessageHeader& a, const MessageHeader& b) {
  MessageHeader other = b;
  other.history = a.history;
  return a.history != b.history && agree(a, other);
}

// Calls of bindings that are made of others: headers and histories have these in place of the collective.
constexpr Collective as_collective(Composite call) {
  return static_cast<Collective>(0x80 | static_cast<std::uint8_t>(call));
}
constexpr bool is_composite(Collective collective) { return (static_cast<std::uint8_t>(collective) & 0x80) != 0; }
constexpr bool is_message_call(Collective collective) {
  return collective == Collective::send || collective == Collective::recv;
}
// Their names too.
std::string_view call_name(Collective collective);

// The calls by which ranks meet, as many as that takes, have numbers of their own, so that a program's first call is
// #0.
inline constexpr std::uint32_t first_of_meeting = 0xFFFF0000;
// "#17", or "#2 of the meeting".
std::string call_number(std::uint32_t sequence);

// What errors call what ranks tell each other by number.
struct Names {
  RankNames rank = {};
  ElementName element = nullptr;  // null: by its number
};

// What of two labels differs, as a part of a sentence: ", and the shapes of rank 0 and rank 1 differ".
std::string label_difference(Rank self, const CallLabel& ours, Rank peer, const CallLabel& theirs, const Names& names);

// "f32 sum", or "f32" of what has no operator; "1 element".
std::string vector_words(Collective, DType, ReduceOp);
std::string element_count(std::uint64_t count);

// How errors end that are about calls which differ.
inline constexpr std::string_view advice =
    "every rank must call the same collectives in the same order with the same sizes and types";

// What `self` gets told when `peer` does something else than it does. `before`: of ranks that do the same now, what is
// known of how they came to differ, see CallHistory::since.
Error disagreement(Rank self, const MessageHeader& ours, Rank peer, const MessageHeader& theirs, const Names& names,
                   const std::string& before);

// The class of a priority: 0 is that of ordinary operations, which share lanes; each above has one of its own.
constexpr Lane urgency_of(int priority) { return static_cast<Lane>(std::clamp<int>(priority, 0, urgent_lanes)); }

// In front of each send/recv message.
struct TagHeader {
  Epoch epoch = 0;
  Collective collective = Collective::send;
  DType dtype = DType::u8;
  CallLabel label = {};
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  std::uint32_t calls = 0;    // how many collectives its sender had called, …
  std::uint32_t history = 0;  // … and their digest: see CallHistory
};
static_assert(sizeof(TagHeader) == 32 && std::has_unique_object_representations_v<TagHeader>);

}  // namespace ranvier::engine
