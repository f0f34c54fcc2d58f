#include "base/spec.h"

#include <gmock/gmock.h>

#include <string>

#include "ranvier/error.h"

namespace ranvier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

std::string refusal(std::string_view spec) {
  try {
    parse_spec(spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Spec, OfOneWordIsAStageWithoutValueAndSettings) {
  const auto stages = parse_spec("bf16");
  ASSERT_THAT(stages, SizeIs(1));
  EXPECT_EQ(stages[0].name, "bf16");
  EXPECT_EQ(stages[0].value, "");
  EXPECT_THAT(stages[0].settings, IsEmpty());
}

TEST(Spec, HoldsStagesValuesAndSettingsInOrder) {
  const auto stages = parse_spec("topk:0.01,per=row,seed=7+int8+rans:order=1");
  ASSERT_THAT(stages, SizeIs(3));
  EXPECT_EQ(stages[0].name, "topk");
  EXPECT_EQ(stages[0].value, "0.01");
  EXPECT_THAT(stages[0].settings, ElementsAre(Pair("per", "row"), Pair("seed", "7")));
  EXPECT_EQ(stages[1].name, "int8");
  EXPECT_EQ(stages[2].value, "");
  EXPECT_THAT(stages[2].settings, ElementsAre(Pair("order", "1")));
}

TEST(Spec, WithACommaWhereSettingsBeginIsToldOfTheColon) {
  EXPECT_THAT(refusal("int8,block=32"), HasSubstr("write 'int8:block=32'"));
  EXPECT_THAT(refusal("topk:0.1+int8,block=32"), HasSubstr("write 'int8:block=32'"));
  EXPECT_THAT(refusal("int8,32"), HasSubstr("write 'int8:32'"));
  EXPECT_THAT(refusal("int8,block="), HasSubstr("incomplete setting"));
}

TEST(Spec, ThatIsMalformedIsRefusedWithItsTextAndTheGrammar) {
  for (const std::string_view spec :
       {"", "+", "a+", "+a", ":1", "a:", "a:1,", "a:,b=1", "a:=1", "a:b=", "a:1,2", "a:b=1,2", "a:b=1,b=2"}) {
    const std::string sentence = refusal(spec);
    EXPECT_THAT(sentence, HasSubstr("'" + std::string(spec) + "'")) << spec;
    EXPECT_THAT(sentence, HasSubstr("name:value,key=value")) << spec;
  }
}

}  // namespace
}  // namespace ranvier
