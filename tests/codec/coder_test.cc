#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernel/fenced_memory.h"
#include "kernel/instruction_sets.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using Symbols = std::vector<std::uint8_t>;
using Code = std::vector<std::byte>;
using testing::FencedMemory;

// Kinds of symbols: what each is drawn from, and how.
struct Source {
  const char* name;
  std::uint8_t (*draw)(std::mt19937&);
  bool has_runs = false;  // of zeros
};
std::uint8_t normal(std::mt19937& random, double deviation) {
  const double drawn = std::normal_distribution<double>(128, deviation)(random);
  return static_cast<std::uint8_t>(std::clamp(std::round(drawn), 0.0, 255.0));
}
constexpr Source sources[] = {
    {"one symbol", [](std::mt19937&) { return std::uint8_t{77}; }},
    {"uniform bytes", [](std::mt19937& random) { return static_cast<std::uint8_t>(random()); }},
    {"uniform below 16", [](std::mt19937& random) { return static_cast<std::uint8_t>(random() % 16); }},
    {"normal as int8", [](std::mt19937& random) { return normal(random, 20); }},
    {"normal, narrow", [](std::mt19937& random) { return normal(random, 0.4); }},
    {"ternary", [](std::mt19937& random) { return static_cast<std::uint8_t>(random() % 10 < 8 ? 1 : random() % 3); }},
    {"bits", [](std::mt19937& random) { return static_cast<std::uint8_t>(random() % 2); }},
    {"one in a thousand", [](std::mt19937& random) { return static_cast<std::uint8_t>(random() % 1000 == 0); }},
    {"two far apart", [](std::mt19937& random) { return static_cast<std::uint8_t>(random() % 2 ? 255 : 0); }},
    {"runs of zeros", [](std::mt19937& random) { return static_cast<std::uint8_t>(random() % 40); }, true},
};

Symbols drawn(const Source& source, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Symbols symbols(count);
  bool in_run = false;
  for (std::uint8_t& symbol : symbols) {
    in_run = source.has_runs && random() % 16 == 0 ? !in_run : in_run;
    symbol = in_run ? 0 : source.draw(random);
  }
  return symbols;
}

Code encoded(const Coder& coder, const Symbols& symbols) {
  Code code(coder.max_bytes(symbols.size()));
  code.resize(coder.encode(symbols, code));
  return code;
}

// Decodes from memory that ends at a page nobody may touch, into memory that ends at another one.
Symbols decoded(const Coder& coder, const Code& code, std::size_t count) {
  FencedMemory from(code.size()), to(count);
  const auto input = from.take(code.size(), 0), output = to.take(count, 0);
  std::ranges::copy(code, input.begin());
  coder.decode(input, {reinterpret_cast<std::uint8_t*>(output.data()), count});
  EXPECT_TRUE(from.intact() && to.intact()) << coder.name();
  Symbols symbols(count);
  if (count > 0) std::memcpy(symbols.data(), output.data(), count);
  return symbols;
}

class EachCoder : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Coder> coder = make_coder(GetParam());

  void expect_round_trip(const Symbols& symbols, const char* what) {
    const Code code = encoded(*coder, symbols);
    ASSERT_EQ(decoded(*coder, code, symbols.size()), symbols) << symbols.size() << ' ' << what;
  }
};

INSTANTIATE_TEST_SUITE_P(Of, EachCoder, ::testing::ValuesIn(coder_names()),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(EachCoder, ReturnsWhatWentInAtEveryLength) {
  const std::size_t step = support::sanitized ? 7 : 1;
  for (std::size_t count = 0; count <= 70; ++count)
    for (const Source& source : sources) expect_round_trip(drawn(source, count, 1), source.name);
  for (std::size_t count = 71; count <= 4097; count += step)
    expect_round_trip(drawn(sources[count % std::size(sources)], count, 2), sources[count % std::size(sources)].name);
}

// Where formats change: fewer and more states or streams, groups, blocks.
TEST_P(EachCoder, ReturnsWhatWentInAroundEveryChangeOfFormat) {
  for (const std::size_t border : {1024, 4096, 8192, 16384, 65536})
    for (const std::size_t count : {border - 1, border, border + 1, border + 33})
      for (std::size_t kind = count % 2; kind < std::size(sources); kind += 2)
        expect_round_trip(drawn(sources[kind], count, 3), sources[kind].name);
}

TEST_P(EachCoder, ReturnsBuffersOfSeveralBlocks) {
  for (const std::size_t count : {std::size_t{1} << 20, (std::size_t{1} << 20) + 1, (std::size_t{5} << 19) + 12345})
    for (const std::size_t kind : {3, 5, 9}) expect_round_trip(drawn(sources[kind], count, 4), sources[kind].name);
}

TEST_P(EachCoder, WritesNoMoreThanItSaysWhateverTheSymbols) {
  for (const std::size_t count : {1, 2, 3, 100, 4097, 70000})
    for (const Source& source : sources) {
      const Symbols symbols = drawn(source, count, 5);
      FencedMemory memory(coder->max_bytes(count));
      const auto out = memory.take(coder->max_bytes(count), 0);
      EXPECT_LE(coder->encode(symbols, out), out.size());
      EXPECT_TRUE(memory.intact()) << coder->name() << ' ' << count << ' ' << source.name;
      EXPECT_LE(coder->max_bytes(count), count + 4);
    }
}

TEST_P(EachCoder, TakesTwoBytesForOneSymbolRepeated) { EXPECT_EQ(encoded(*coder, Symbols(100000, 9)).size(), 2U); }

TEST_P(EachCoder, RefusesTooLittleRoom) {
  const Symbols symbols(100, 1);
  Code out(coder->max_bytes(100) - 1);
  try {
    coder->encode(symbols, out);
    FAIL() << "took " << out.size() << " bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(GetParam()));
  }
}

// Whatever comes, a decoder returns or throws Error{mismatch}. Says whether it returned.
bool accepts(const Coder& coder, const Code& code, std::size_t count) {
  try {
    decoded(coder, code, count);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
    return false;
  }
}

TEST_P(EachCoder, RefusesACodeThatIsTooShortOrTooLong) {
  for (const std::size_t count : {1, 50, 3000, 20000, 70000})
    for (const Source& source : sources) {
      Code code = encoded(*coder, drawn(source, count, 6));
      code.push_back(std::byte{0});
      EXPECT_FALSE(accepts(*coder, code, count)) << count << ' ' << source.name;
      code.pop_back();
      for (int lacking = 1; lacking <= 6 && code.size() > 1; ++lacking) {
        code.pop_back();
        EXPECT_FALSE(accepts(*coder, code, count)) << count << ' ' << source.name << " without " << lacking << " bytes";
      }
      EXPECT_FALSE(accepts(*coder, {}, count));
    }
}

TEST_P(EachCoder, TakesNothingForNothing) {
  EXPECT_TRUE(encoded(*coder, {}).empty());
  EXPECT_FALSE(accepts(*coder, Code(1), 0));
}

void mutate(Code& code, std::mt19937& random) {
  const auto place = [&] { return random() % code.size(); };
  switch (random() % 6) {
    case 0:
      code[place()] ^= std::byte{1} << random() % 8;
      break;
    case 1:
      code[place()] = static_cast<std::byte>(random());
      break;
    case 2:  // the header is what decoders believe
      code[random() % std::min<std::size_t>(code.size(), 24)] = static_cast<std::byte>(random());
      break;
    case 3:
      code.resize(1 + place());
      break;
    case 4:
      code.insert(code.begin() + static_cast<std::ptrdiff_t>(place()), 1 + random() % 9,
                  static_cast<std::byte>(random()));
      break;
    default:
      for (std::size_t i = place(); i < code.size(); ++i) code[i] = static_cast<std::byte>(random());
  }
}

TEST_P(EachCoder, SurvivesDamage) {
  std::mt19937 random(7);
  const int rounds = support::sanitized ? 100 : 300;
  for (const std::size_t count : {2, 30, 1500, 9000, 66000})
    for (const Source& source : sources) {
      const Code whole = encoded(*coder, drawn(source, count, 8));
      for (int round = 0; round < rounds / (count > 5000 ? 10 : 1); ++round) {
        Code code = whole;
        for (auto times = 1 + random() % 3; times > 0; --times) mutate(code, random);
        accepts(*coder, code, count);
      }
    }
}

TEST_P(EachCoder, SurvivesNoise) {
  std::mt19937 random(9);
  for (int round = 0; round < 2000; ++round) {
    Code code(1 + random() % 300);
    for (std::byte& byte : code) byte = static_cast<std::byte>(random());
    code[0] = std::byte{2};  // a block that says it is coded
    accepts(*coder, code, code.size() + random() % 3000);
  }
}

// ---- What single coders promise

// All but those that move a slot to a neighbour of the same frequency.
TEST(Rans, NoticesNearlyEverySingleFlippedBit) {
  const auto coder = rans();
  const Symbols symbols = drawn(sources[3], 3000, 10);
  const Code whole = encoded(*coder, symbols);
  std::size_t refused = 0, tried = 0;
  for (std::size_t byte = whole.size() / 2; byte < whole.size(); byte += 5)
    for (unsigned bit = 0; bit < 8; ++bit, ++tried) {
      Code code = whole;
      code[byte] ^= std::byte{1} << bit;
      refused += !accepts(*coder, code, symbols.size());
    }
  EXPECT_GT(refused, tried * 95 / 100);
}

// Nearly any number is the arithmetic code of something; what shows is that it does not end as it should.
TEST(RangeCoder, NoticesNearlyEverySingleFlippedBit) {
  const auto coder = range_coder();
  const Symbols symbols = drawn(sources[3], 3000, 10);
  const Code whole = encoded(*coder, symbols);
  std::size_t accepted = 0;
  for (std::size_t byte = 3; byte < whole.size(); byte += 5)
    for (unsigned bit = 0; bit < 8; ++bit) {
      Code code = whole;
      code[byte] ^= std::byte{1} << bit;
      accepted += accepts(*coder, code, symbols.size());
    }
  EXPECT_LE(accepted, 2U);  // one of 65,536 is due, and some 4000 were tried
}

// One of these places is where the words begin: then all symbols are right, and a word is left.
TEST(Rans, RefusesAWordTooMany) {
  const auto coder = rans();
  for (const std::size_t count : {3000, 9000}) {
    const Code whole = encoded(*coder, drawn(sources[3], count, 14));
    for (std::ptrdiff_t place = 2; place < 250; ++place) {
      Code code = whole;
      code.insert(code.begin() + place, 2, std::byte{0x55});
      EXPECT_FALSE(accepts(*coder, code, count)) << place;
    }
  }
}

class RansOn : public testing::EachInstructionSet {};
RANVIER_FOR_EACH_INSTRUCTION_SET(RansOn);

TEST_P(RansOn, ReadsTheSameSymbols) {
  const auto coder = rans();
  for (const Source& source : sources)
    for (const std::size_t count : {65536, 300031}) {
      const Symbols symbols = drawn(source, count, 11);
      EXPECT_EQ(decoded(*coder, encoded(*coder, symbols), count), symbols) << source.name;
    }
}

TEST_P(RansOn, SurvivesDamage) {
  std::mt19937 random(12);
  const auto coder = rans();
  for (const std::size_t kind : {3, 4, 5}) {
    const Code whole = encoded(*coder, drawn(sources[kind], 65536, 13));
    for (int round = 0; round < 50; ++round) {
      Code code = whole;
      mutate(code, random);
      accepts(*coder, code, 65536);
    }
  }
}

TEST(MakeCoder, AnswersAWrongNameWithTheNearest) {
  try {
    make_coder("hufman");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean 'huffman'?"));
  }
}

}  // namespace
}  // namespace ranvier
