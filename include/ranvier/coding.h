// Entropy coding: symbols, index sets and floats in nearly as few bits as they carry information, and exactly back.
//
// No code carries how many symbols it holds: the reader knows, from the shape of its bucket. What is no code of that
// many symbols, from truncated to hostile, is an Error{mismatch}, found without reading or writing out of bounds; the
// same bytes may be codes of several numbers, as of one symbol again and again. Everything here may be called from
// several threads at once, and a code means the same symbols on every machine. docs/codecs.md has the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ranvier/types.h"

namespace ranvier {

// Codes byte symbols. Small alphabets code best when they are 0 … n-1. Where one symbol comes often and in runs, rans,
// huffman and range code where it is as a bitmap, and take less than the entropy of single symbols.
class Coder {
 public:
  virtual ~Coder() = default;
  // As it stands in a spec: "rans".
  virtual std::string_view name() const = 0;
  // The most bytes that `count` symbols may need, and so the least that encode wants: about `count`.
  virtual std::size_t max_bytes(std::size_t count) const = 0;
  // Writes the code of `symbols` to `out` and returns its length; bytes of `out` behind it may change too. Throws
  // Error{usage} when `out` is shorter than max_bytes.
  virtual std::size_t encode(std::span<const std::uint8_t> symbols, Bytes out) const = 0;
  // Reads exactly the code of out.size() symbols; throws Error{mismatch} for anything else, when `out` may hold
  // anything.
  virtual void decode(ConstBytes code, std::span<std::uint8_t> out) const = 0;
};

// Range asymmetric numeral systems, up to 64 interleaved states in vectors: 0.1 to 1.5 % above the entropy
// (docs/codecs.md), and the fastest. Duda, arXiv:1311.2540; Giesen, arXiv:1402.3392.
std::unique_ptr<Coder> rans();
// Canonical Huffman codes of at most 12 bits in four streams; small alphabets are coded in groups of symbols, so that
// less than a bit a symbol is possible. 0.5 to 4.5 % above the entropy where that is more than some 1.5 bits. Huffman,
// 1952.
std::unique_ptr<Coder> huffman();
// Arithmetic coding with a model that adapts as it goes, and so without any table: best for short buffers, and the
// slowest. Moffat, Neal and Witten, ACM TOIS 1998.
std::unique_ptr<Coder> range_coder();
// Zstandard (RFC 8878) at level 1, to compare with: it also looks for repeats, which quantized gradients hardly have.
std::unique_ptr<Coder> zstd();
std::string_view zstd_version();  // "1.5.4"
// Fixed codes for numbers of which small ones are the most frequent: no table, no statistics. Elias 1975.
std::unique_ptr<Coder> elias_gamma();
std::unique_ptr<Coder> elias_delta();
// Golomb codes with a power of two as the divisor, chosen for the buffer. Golomb 1966, Rice 1979.
std::unique_ptr<Coder> golomb_rice();

// A coder by its name in a spec: "rans", "huffman", "range", "zstd", "elias_gamma", "elias_delta", "golomb_rice".
// Throws Error{usage} naming the nearest.
std::unique_ptr<Coder> make_coder(std::string_view name);
std::span<const std::string_view> coder_names();

// Sets of indices, as sparsifiers send them: strictly increasing numbers below `universe`. The first byte says how:
// a bit for every number below universe, or the gaps between indices in one of the integer codes above.
enum class IndexCode : std::uint8_t { bitmap, golomb_rice, elias_gamma, elias_delta };
std::string_view name_of(IndexCode);
// The most that encode_indices needs when it may choose: 1 + ceil(universe / 8), or less where count is small.
std::size_t max_index_bytes(std::size_t count, std::uint32_t universe);
// The bytes that this code takes for these indices.
std::size_t index_bytes(std::span<const std::uint32_t> indices, std::uint32_t universe, IndexCode);
// Writes the shortest code, or the one that is asked for; `out` has at least max_index_bytes, or index_bytes of that
// code. Throws Error{usage} for indices that do not increase or reach `universe`.
std::size_t encode_indices(std::span<const std::uint32_t> indices, std::uint32_t universe, Bytes out,
                           std::optional<IndexCode> code = {});
// Reads exactly out.size() indices; they are strictly increasing and below `universe`, or Error{mismatch} is thrown.
void decode_indices(ConstBytes code, std::uint32_t universe, std::span<std::uint32_t> out);

// Floats without loss, every bit of them, NaN and -0 too (f32 or bf16; others throw Error{usage}): exactly zero values
// become a bitmap where there are many, then exponents, signs and mantissas are coded apart by rANS where it saves.
// Hershcovitch et al., "ZipNN: Lossless Compression for AI Models", arXiv:2411.05239.
std::size_t max_lossless_bytes(std::size_t count, DType type);
std::size_t encode_lossless(ConstTypedSpan values, Bytes out);
void decode_lossless(ConstBytes code, TypedSpan values);

}  // namespace ranvier
