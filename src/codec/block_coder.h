// What all coders of bytes share: symbols are coded in blocks of 1 Mi, each with statistics of its own, so that both
// passes over a block stay in the cache, working memory is bounded, and tables follow the gradients from layer to
// layer. A block whose code would not be shorter goes as it is, so no code is longer than its symbols by more than 4
// bytes a block; one symbol repeated takes two bytes.
#pragma once

#include <string_view>

#include "ranvier/coding.h"

namespace ranvier {

class BlockCoder : public Coder {
 public:
  static constexpr std::size_t block_symbols = std::size_t{1} << 20;
  static constexpr std::size_t fewest_coded = 8;  // shorter blocks go as they are

  explicit BlockCoder(std::string_view name) : name_(name) {}
  std::string_view name() const final { return name_; }
  std::size_t max_bytes(std::size_t count) const final;
  std::size_t encode(std::span<const std::uint8_t> symbols, Bytes out) const final;
  void decode(ConstBytes code, std::span<std::uint8_t> out) const final;

 protected:
  // Writes the code of one block (at least fewest_coded symbols, not all equal) and returns its length; 0 if `out`,
  // which is a byte shorter than the symbols, is too small for it.
  virtual std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const = 0;
  // False for what encode_block cannot have written for out.size() symbols.
  virtual bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const = 0;

 private:
  std::size_t encode_one(std::span<const std::uint8_t> symbols, Bytes out) const;
  bool decode_one(ConstBytes code, std::span<std::uint8_t> out) const;
  bool decode_all(ConstBytes code, std::span<std::uint8_t> out) const;

  std::string_view name_;
};

}  // namespace ranvier
