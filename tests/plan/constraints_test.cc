#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/design.h"
#include "ranvier/error.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Constraints, AreBroughtToOneSide) {
  const auto found = parse_constraints("2*b0 - b1 + 30 <= 3 b2 + 100GB/s", 3);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].coefficients, ElementsAre(2, -1, -3));
  EXPECT_EQ(found[0].relation, Relation::at_most);
  EXPECT_EQ(found[0].limit, 70);
}

TEST(Constraints, MultiplyAndDivideByNumbersOnEitherSide) {
  for (const char* text :
       {"b0*2 + b1 <= 300", "2 b0 + b1*1 <= 3*100", "(4*b0 + b1*2)/2 <= 300GB/s", "2*(b0 + b1) - b1 <= 600/2",
        "2 (b0 + b1/2) <= 300", "-(-2*b0 - b1) <= 300", "2b0 + b1 <= 2400Gbit", "2b0 + b1 <= 2.4 Tbit/s"}) {
    const auto found = parse_constraints(text, 2);
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_THAT(found[0].coefficients, ElementsAre(2, 1)) << text;
    EXPECT_EQ(found[0].limit, 300) << text;
  }
}

TEST(Constraints, MayBeChains) {
  const auto found = parse_constraints("b0>=b1>=b2", 3);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].coefficients, ElementsAre(1, -1, 0));
  EXPECT_THAT(found[1].coefficients, ElementsAre(0, 1, -1));
  EXPECT_EQ(found[1].relation, Relation::at_least);
  EXPECT_EQ(found[1].limit, 0);
}

TEST(Constraints, TakeEverySpellingOfARelationAndUnits) {
  for (const char* text :
       {"b0=5", "b0 == 5000MB/s", "b0 = 0.005TB/s", "5=b0", "b0=5GB", "b0 = 40Gbit", "b0=0.005 TB"}) {
    const auto found = parse_constraints(text, 1);
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_EQ(found[0].relation, Relation::equal);
    EXPECT_NEAR(found[0].limit / found[0].coefficients[0], 5, 1e-12) << text;
  }
  EXPECT_EQ(parse_constraints("b0<5", 1)[0].relation, Relation::at_most);
  EXPECT_EQ(parse_constraints("-b0 >= -5", 1)[0].limit, -5);
}

// Up to 200 letters, none of which is taken apart; what is no UTF-8 makes no sentence long.
TEST(Constraints, AreQuotedAsTheyAreWritten) {
  const auto sentence = [](const std::string& text) { return support::refusal([&] { parse_constraints(text, 1); }); };
  EXPECT_THAT(sentence("b0≤3"), HasSubstr("constraint 'b0≤3', column 3: "));
  EXPECT_THAT(sentence("b0\n\x7f≤3"), HasSubstr("constraint 'b0??≤3', column 4: "));
  std::string many;
  for (int i = 0; i < 200; ++i) many += "≤";
  EXPECT_THAT(sentence(many), HasSubstr("constraint '" + many + "', column 1: "));
  EXPECT_THAT(sentence(many + "≤"), HasSubstr("constraint '" + many + "…', column 1: "));
  EXPECT_THAT(sentence("\x80\xff"), HasSubstr("constraint '\\x80\\xff', column 1: "));
  EXPECT_LT(sentence(std::string(9000, '\x80')).size(), 4000u);
}

TEST(Constraints, ThatAUnitMakesInfiniteAreRefused) {
  EXPECT_THAT(support::refusal([] { parse_constraints("b0 <= 1e308TB/s", 1); }),
              HasSubstr("column 7: this is no number"));
}

TEST(Constraints, ThatDoNotParseNameTheColumn) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "column 1: a number or a bandwidth is expected"},
           {"b0", "column 3: '<=', '>=' or '=' is missing"},
           {"b0 <= ", "column 7: a number or a bandwidth is expected"},
           {"b0 <= b7", "column 7: there is no b7: the network has 2 dimensions"},
           {"b0 <= bandwidth", "column 7: a bandwidth is b and the number"},
           {"b0 <= 5 apples", "column 9: '<=', '>=' or '=' is expected"},
           {"2 ** b0 <= 5", "column 4: a number or a bandwidth is expected"},
           {"b0 * b1 <= 5", "column 4: one side of '*' has to be a number"},
           {"5 / b0 <= 5", "column 4: what divides has to be a number"},
           {"b0 / 0 <= 5", "column 5: nothing is divided by 0"},
           {"2*(b0 + b1 <= 5", "column 12: ')' is missing"},
           {"b0 <= 1e300 * 1e300", "column 7: this is no number"},
           {"3 <= 5", "it is about no bandwidth"},
           {"b0 <= b0", "it is about no bandwidth"},
           {"b0 <= 1e999", "column 7: this is no number"}})
    try {
      parse_constraints(text, 2);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
}

}  // namespace
}  // namespace ranvier
