// How a rank hands a half of its parameters on and takes a half of another's (src/sync/gossip.cc), plainly or by a
// codec.
//
// By a codec, peers keep of each other what the last message between them left, from the point where all replicas
// agreed: a message is the code of the change since then, and what moves is half of the difference between what a rank
// has been told and what it has told,
//
//   x += (heard - told) / 2,
//
// so that the sum over all ranks is what it was, whatever the code has lost. Koloskova, Stich and Jaggi, "Decentralized
// Stochastic Optimization and Gossip Algorithms with Compressed Communication" (CHOCO-SGD), ICML 2019
// (arXiv:1902.00340), whose peers are always the same; here there are log2 W of them, by turns, each with its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ranvier/communicator.h"
#include "replica/coded_message.h"

namespace ranvier::replica {

// Throws Error{usage} for a codec that gossip cannot go by: each message has to say most of what there is to say.
void check_gossip(std::string_view compress);

class Gossip {
 public:
  // `comm` outlives this. All ranks have the same spec of a codec, which check_gossip() takes.
  Gossip(Communicator& comm, std::string_view compress);

  // All ranks hold these.
  void agree_on(std::span<const float> parameters);
  // To the rank `hops` above, from the one as far below. All ranks call.
  void push(std::size_t hops, std::span<float> parameters);

  std::uint64_t plain_messages() const { return coding_ ? coding_->plain() : 0; }
  std::size_t state_bytes() const;
  void save(std::vector<std::byte>& all) const;
  void restore(ConstBytes& all);

 private:
  struct Peers {
    std::vector<float> told;   // what the rank above holds of this one
    std::vector<float> heard;  // what this one holds of the rank below
  };
  void push_plainly(Rank to, Rank from, std::span<float> parameters);
  void push_code(Rank to, Rank from, Peers& peers, std::span<float> parameters);

  Communicator& comm_;
  const std::unique_ptr<const CodedMessages> coding_;  // null: floats as they are
  std::vector<float> agreed_;                          // until a distance has peers of its own
  std::map<std::size_t, Peers> peers_;                 // by hops
  std::uint64_t number_ = 0;                           // of messages
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  std::vector<float> arrived_;
};

}  // namespace ranvier::replica
