// Floats in messages of one rank to another, by a codec: gradients on their way to a parameter server, with error
// feedback, and on the way back how what a server holds has changed since what the worker holds.
//
// The way back needs no residual: the next change is counted from what has arrived, so that what a code has lost is
// part of it. This is error feedback for what is a state and not a sum, as in Richtárik, Sokolov and Fatkhullin,
// "EF21", NeurIPS 2021 (arXiv:2106.05203), and for both ways Tang et al., "DoubleSqueeze", ICML 2019 (arXiv:1905.05957)
// and Philippenko and Dieuleveut, "Preserved central model for faster bidirectional compression", NeurIPS 2021
// (arXiv:2102.12528), whose server keeps what its workers hold.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ranvier/codec.h"

namespace ranvier::replica {

// Throws Error{usage} for a spec that is not of a codec for what one rank sends to another: `with` what, and what to
// take there.
std::unique_ptr<const Codec> codec_of_messages(
    std::string_view spec, std::string_view with = "parameter servers",
    std::string_view such = "a codec that keeps no more than a residual, such as int8, topk:0.01+int8 or eden:1");

class CodedMessages {
 public:
  explicit CodedMessages(std::unique_ptr<const Codec> codec) : codec_(std::move(codec)) {}

  const Codec& codec() const { return *codec_; }
  std::size_t most_bytes(std::size_t count) const;
  // What is not finite has no code and goes as it is; `state` then stays as it was. The message's length: 0 for none.
  std::size_t write(std::span<const float> values, const CodecState& state, const CodecKey& key, Bytes message) const;
  // Throws Error{mismatch} for what is no message for so many values.
  void read(ConstBytes message, std::span<float> values) const;
  // From `held` towards `values`: `held` becomes what the receiver's will be, who had the same before.
  std::size_t write_change(std::span<const float> values, std::span<float> held, const CodecKey& key,
                           Bytes message) const;
  void read_change(ConstBytes message, std::span<float> held) const;
  // Messages that went as they are.
  std::uint64_t plain() const { return plain_; }

 private:
  enum class Form : std::uint32_t { plain, coded };
  // Before the floats or their code.
  struct Head {
    Form form = Form::plain;
    float scale = 1;  // of a change: what is decoded is multiplied by it
  };

  static void add(float scale, std::span<float> decoded, std::span<float> held);
  static std::size_t finish(const Head& head, std::size_t length, Bytes message);
  std::size_t write_plainly(std::span<const float> values, Bytes message) const;
  // Of a code, which is what is left of `message` then; none where `values` have been read.
  static std::optional<Head> begin(ConstBytes& message, std::span<float> values);

  const std::unique_ptr<const Codec> codec_;
  mutable std::atomic<std::uint64_t> plain_ = 0;
};

}  // namespace ranvier::replica
