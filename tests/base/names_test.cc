#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <type_traits>

#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier {
namespace {

template <class Values, class Parse>
void expect_names_to_return(const Values& values, Parse parse) {
  std::set<std::string_view> names;
  for (const auto value : values) {
    EXPECT_EQ(parse(name_of(value)), value) << name_of(value);
    EXPECT_TRUE(names.insert(name_of(value)).second) << name_of(value) << " names two things";
  }
}

TEST(Names, OfEveryTypeReductionAndCollectiveAreUniqueAndParseBack) {
  expect_names_to_return(all_dtypes, parse_dtype);
  expect_names_to_return(all_reduce_ops, parse_reduce_op);
  expect_names_to_return(all_collectives, parse_collective);
}

TEST(Names, OfErrorKindsAreUniqueAndParseBack) {
  expect_names_to_return(std::array{ErrorKind::usage, ErrorKind::config, ErrorKind::unreachable, ErrorKind::peer_lost,
                                    ErrorKind::mismatch, ErrorKind::timeout, ErrorKind::aborted, ErrorKind::internal},
                         parse_error_kind);
}

TEST(Errors, QuoteNothingThatSteersATerminal) {
  const auto shown = [](std::string_view sentence) {
    return std::string(Error(ErrorKind::usage, std::string(sentence)).what());
  };
  EXPECT_EQ(shown("rank 1 said \x1b[2J\a"), "rank 1 said \\x1b[2J\\x07");
  EXPECT_EQ(Error(ErrorKind::aborted, "").with_flight_record("#0 \x1b[2J\n#1 \x7f\n").flight_record(),
            "#0 \\x1b[2J\n#1 \\x7f\n");
  EXPECT_EQ(shown("a\tb\nc \x7f \xc2\x9b 2"), "a\tb\nc \\x7f \\xc2\\x9b 2");
  EXPECT_EQ(shown("Gr\xc3\xb6\xc3\x9f"
                  "e \xe2\x82\xac \xf0\x9f\x98\x80"),
            "Gr\xc3\xb6\xc3\x9f"
            "e \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(shown("\xff \x9b \xe2\x82"), "\\xff \\x9b \\xe2\\x82") << "no UTF-8";
}

TEST(Names, TakeTheSpellingsOfTorchNumpyAndNcclTests) {
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_EQ(parse_dtype("half"), DType::f16);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("uint8"), DType::u8);
  EXPECT_EQ(parse_reduce_op("avg"), ReduceOp::average);
  EXPECT_EQ(parse_reduce_op("prod"), ReduceOp::product);
}

TEST(Names, ThatAreUnknownGiveNothing) {
  for (const auto word : {"", "f33", "F32", "f32 ", "?"}) EXPECT_EQ(parse_dtype(word), std::nullopt) << word;
  EXPECT_EQ(parse_reduce_op("?"), std::nullopt);
  EXPECT_EQ(parse_collective("allreduce"), std::nullopt);
  EXPECT_EQ(parse_error_kind("peer"), std::nullopt);
}

template <class T>
void expect_width() {
  EXPECT_EQ(size_of(DTypeOf<T>::value), sizeof(T)) << name_of(DTypeOf<T>::value);
  EXPECT_EQ(is_floating(DTypeOf<T>::value), std::is_floating_point_v<T>) << name_of(DTypeOf<T>::value);
}

TEST(Types, AreAsWideAsTheCppTypesThatTheyStandFor) {
  expect_width<float>();
  expect_width<double>();
  expect_width<std::int8_t>();
  expect_width<std::int16_t>();
  expect_width<std::int32_t>();
  expect_width<std::int64_t>();
  expect_width<std::uint8_t>();
  expect_width<bool>();
}

TEST(Error, KeepsItsKindCulpritSentenceAndFlightRecord) {
  const Error error(ErrorKind::peer_lost, "rank 3 died", 3);
  const Error with_record = error.with_flight_record("1 all_reduce");
  EXPECT_EQ(with_record.kind(), ErrorKind::peer_lost);
  EXPECT_EQ(with_record.culprit(), 3);
  EXPECT_STREQ(with_record.what(), "rank 3 died");
  EXPECT_EQ(with_record.flight_record(), "1 all_reduce");
  EXPECT_EQ(error.flight_record(), "");
}

}  // namespace
}  // namespace ranvier
