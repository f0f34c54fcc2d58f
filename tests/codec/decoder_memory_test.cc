// What decoders allocate, whatever the bytes say: counted by operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "codec/codes.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"
#include "support/counted_memory.h"

namespace ranvier {
namespace {

using testing::Code;
using testing::Kind;
using testing::Values;

// More than was held before `body`, at any moment in it.
template <class Body>
std::size_t allocated_by(const Body& body) {
  support::restart_most_held();
  const std::size_t before = support::held_bytes();
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
  }
  return support::most_held_bytes() - before;
}

// Calls body(hostile code): `whole` with numbers of up to four bytes made as large as can be, bits turned, and cut off;
// noise.
template <class Body>
void each_hostile(const Code& whole, const Body& body) {
  std::mt19937 random(1);
  for (std::size_t at = 0; at < std::min<std::size_t>(whole.size(), 24); ++at)
    for (const std::size_t bytes : {1, 2, 4}) {
      Code code = whole;
      std::fill_n(code.begin() + static_cast<std::ptrdiff_t>(at), std::min(bytes, code.size() - at), std::byte{0xff});
      body(code);
    }
  for (int round = 0; round < 60; ++round) {
    Code code = whole;
    for (auto times = 1 + random() % 3; times > 0 && !code.empty(); --times)
      code[random() % code.size()] ^= std::byte{1} << random() % 8;
    if (round % 4 == 0) code.resize(random() % (code.size() + 1));
    if (round % 4 == 1) std::ranges::generate(code, [&] { return static_cast<std::byte>(random()); });
    body(code);
  }
}

constexpr std::size_t lengths[] = {1, 4097, 150'000};
constexpr std::size_t block = 1 << 20;  // symbols, of the coders that have blocks: what the most memory is for

TEST(DecoderMemory, IsCounted) {
  EXPECT_GE(allocated_by([] { const std::vector<int> memory(100); }), 400U);
  EXPECT_EQ(allocated_by([] {}), 0U);
}

// docs/codecs.md: 640 KiB for huffman, 128 KiB for rans and range, nothing for the others; zstd's comes from malloc.
TEST(DecoderMemory, OfACoderIsBounded) {
  for (const std::string_view name : coder_names())
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{4097}, name == "huffman" ? block : std::size_t{150'000}}) {
      const auto coder = make_coder(name);
      std::mt19937 random(2);
      std::vector<std::uint8_t> symbols(count), out(count);
      for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(random() % 8 * (random() % 8) / 8);
      if (count > 4097) std::fill_n(symbols.begin() + 999, count / 2, std::uint8_t{0});  // as a bitmap
      Code whole(coder->max_bytes(count));
      whole.resize(coder->encode(symbols, whole));
      const std::size_t heap = name == "huffman" ? 640 << 10 : name == "rans" || name == "range" ? 128 << 10 : 0;
      const std::size_t bound = heap + (1 << 10);  // an error's words
      each_hostile(whole, [&](const Code& code) {
        ASSERT_LE(allocated_by([&] { coder->decode(code, out); }), bound) << name << ", " << count;
      });
    }
}

TEST(DecoderMemory, OfIndicesIsNothing) {
  constexpr std::uint32_t universe = 100'000;
  std::vector<std::uint32_t> indices, out;
  for (std::uint32_t index = 3; index < universe; index += 97) indices.push_back(index);
  out.resize(indices.size());
  Code whole(max_index_bytes(indices.size(), universe));
  whole.resize(encode_indices(indices, universe, whole));
  each_hostile(whole, [&](const Code& code) {
    ASSERT_LE(allocated_by([&] { decode_indices(code, universe, out); }), 1U << 10);
  });
}

// docs/codecs.md: 24 bytes for each value that is asked for, and what the coder takes.
TEST(DecoderMemory, OfACodecDependsOnWhatIsAskedForAndNotOnWhatTheCodeSays) {
  std::vector<std::string> specs{
      "int8+rans",           "int4+huffman",          "int4+range",          "int4+elias_gamma",
      "qsgd:7+golomb_rice",  "hadamard:32+int4+rans", "topk:0.01+int8+rans", "dct+topk:0.1+int4+huffman",
      "topk:0.5,layers=0.5", "bf16+lossless",         "randk:0.1+int4",      "sidco:0.1+eden:1",
      "dgc:0.01+int4",       "threshold:0.001+bf16"};
  for (const StageInfo& stage : codec_stages())
    if (stage.kind == StageKind::quantize || stage.kind == StageKind::sparsify || stage.name == "lossless")
      specs.emplace_back(stage.name);
  for (const std::string& spec : specs)
    for (const std::size_t count : lengths) {
      const auto codec = make_codec(spec);
      const Code whole = testing::encoded(*codec, testing::values_of(Kind::skewed, count));
      Values out(count);
      const std::size_t bound = 24 * count + (std::size_t{5} << 18);
      each_hostile(whole, [&](const Code& code) {
        for (const Combine combine : {Combine::replace, Combine::add})
          ASSERT_LE(allocated_by([&] { codec->decode(code, out, combine); }), bound) << spec << ", " << count;
      });
    }
}

}  // namespace
}  // namespace ranvier
