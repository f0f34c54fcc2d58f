// How a rank hands a half of its parameters on and takes a half of another's (src/sync/gossip.cc), plainly or by a
// codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ranvier/communicator.h"
#include "replica/coded_pair.h"

namespace ranvier::replica {

class Gossip {
 public:
  // `comm` outlives this. All ranks have the same spec of a codec, which check_codec_of_pairs() takes.
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
  void push_plainly(Rank to, Rank from, std::span<float> parameters);
  void push_code(Rank to, Rank from, CodedPair& pair, std::span<float> parameters);

  Communicator& comm_;
  const std::unique_ptr<const CodedMessages> coding_;  // null: floats as they are
  std::vector<float> agreed_;                          // until a distance has peers of its own
  std::map<std::size_t, CodedPair> peers_;             // by hops
  std::uint64_t number_ = 0;                           // of messages
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  std::vector<float> arrived_;
};

}  // namespace ranvier::replica
