#include <gmock/gmock.h>

#include <string>

#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::string_view spec) {
  try {
    make_codec(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(MakeCodec, MakesTheCodecThatItsOwnSpecNames) {
  for (const std::string_view spec : {"bf16"}) EXPECT_EQ(make_codec(spec)->spec(), spec);
}

TEST(MakeCodec, AnswersAWrongNameWithTheNearestAndTheList) {
  EXPECT_THAT(refusal("bf61"), AllOf(HasSubstr("'bf61'"), HasSubstr("did you mean 'bf16'?")));
  EXPECT_THAT(refusal("bf16+hufman"), HasSubstr("'hufman'"));
}

TEST(MakeCodec, RefusesAValueOrSettingWhereNoneIsTaken) {
  EXPECT_THAT(refusal("bf16:8"), HasSubstr("'bf16'"));
  EXPECT_THAT(refusal("bf16:round=up"), HasSubstr("'bf16'"));
}

TEST(MakeCodec, RefusesAStageBehindACodecWhoseCodesAreFinal) {
  EXPECT_THAT(refusal("bf16+bf16"), HasSubstr("'bf16+bf16'"));
}

TEST(MakeCodec, RefusesAnEmptySpec) { EXPECT_NE(refusal(""), "accepted"); }

}  // namespace
}  // namespace ranvier
