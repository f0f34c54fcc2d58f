// What all coders of bytes share: symbols are coded in blocks of 1 Mi, each with statistics of its own, so that both
// passes over a block stay in the cache, working memory is bounded, and tables follow the gradients from layer to
// layer. A block whose code would not be shorter goes as it is, so no code is longer than its symbols by more than 4
// bytes a block; one symbol repeated takes two bytes. Coders with statistics code a symbol that comes often as a bitmap
// where that is shorter (symbol_bitmap.h).
#pragma once

#include <string_view>

#include "ranvier/coding.h"

namespace ranvier {

class BlockCoder : public Coder {
 public:
  static constexpr std::size_t block_symbols = std::size_t{1} << 20;
  static constexpr std::size_t fewest_coded = 8;  // shorter blocks go as they are

  enum class Bitmaps : bool { never, where_shorter };
  explicit BlockCoder(std::string_view name, Bitmaps bitmaps = Bitmaps::never) : name_(name), bitmaps_(bitmaps) {}
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
  static constexpr std::size_t fewest_with_bitmap = 16384;  // a table of 256 kinds costs more than shorter ones save

  // `bitmaps`: of the parts of a block with a bitmap, never.
  std::size_t encode_one(std::span<const std::uint8_t> symbols, Bytes out, Bitmaps bitmaps) const;
  bool decode_one(ConstBytes code, std::span<std::uint8_t> out, Bitmaps bitmaps) const;
  std::size_t encode_with_bitmap(std::span<const std::uint8_t> symbols, Bytes out) const;
  bool decode_with_bitmap(ConstBytes code, std::span<std::uint8_t> out) const;
  bool decode_all(ConstBytes code, std::span<std::uint8_t> out) const;

  std::string_view name_;
  Bitmaps bitmaps_;
};

}  // namespace ranvier
