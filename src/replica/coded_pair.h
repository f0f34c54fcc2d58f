// Two ranks that bring their parameters nearer to each other by codes. Both keep of each other what the last message
// between them has left, from where all ranks agreed: a message is the code of the change since then, and what moves is
// half of the difference between what a rank has been told and what it has told,
//
//   x += (heard - told) / 2,
//
// so that the sum over both is what it was, whatever codes lose. Koloskova, Stich and Jaggi, "Decentralized Stochastic
// Optimization and Gossip Algorithms with Compressed Communication" (CHOCO-SGD), ICML 2019 (arXiv:1902.00340), whose
// pairs are always the same; here a rank has several, by turns.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "replica/coded_message.h"

namespace ranvier::replica {

// Throws Error{usage} for a codec that pairs cannot go by: each message has to say most of what there is to say.
void check_codec_of_pairs(std::string_view spec);
// Null for "none". Throws what check_codec_of_pairs() throws.
std::unique_ptr<const CodedMessages> coding_of_pairs(std::string_view spec);

// What this rank and another one hold of each other. In a ring of pushes, the one it tells may be another one than it
// hears.
struct CodedPair {
  explicit CodedPair(std::span<const float> agreed = {})
      : told(agreed.begin(), agreed.end()), heard(agreed.begin(), agreed.end()) {}

  // The message of what this rank holds now.
  void tell(const CodedMessages& coding, const CodecKey& key, std::span<const float> values,
            std::vector<std::byte>& message) {
    message.resize(coding.most_bytes(values.size()));
    message.resize(coding.write_change(values, told, key, message));
  }
  void hear(const CodedMessages& coding, ConstBytes message) { coding.read_change(message, heard); }
  // Behind both.
  void meet(std::span<float> values) const {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += (heard[i] - told[i]) / 2;
  }

  std::vector<float> told;
  std::vector<float> heard;
};

}  // namespace ranvier::replica
