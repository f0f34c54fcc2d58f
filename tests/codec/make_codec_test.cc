#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "ranvier/codec.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::string_view spec) {
  return support::refusal([&] { make_codec(spec); });
}

TEST(MakeCodec, MakesTheCodecThatItsOwnSpecNames) {
  for (const std::string_view spec : {"bf16", "hadamard:32+int4+huffman", "topk:0.01,select=sampled+int8+rans"})
    EXPECT_EQ(make_codec(spec)->spec(), spec);
}

TEST(MakeCodec, EveryStageStandsAloneWithoutParameters) {
  for (const StageInfo& stage : codec_stages()) {
    if (stage.kind == StageKind::exchange) {
      EXPECT_THAT(refusal(stage.name), HasSubstr("average whole buckets"));
    } else if (stage.kind == StageKind::code && stage.name != "lossless") {
      EXPECT_THAT(refusal(stage.name), HasSubstr("quantize to 8 bits or fewer before it"));
      EXPECT_NO_THROW(make_codec(fmt::format("int4+{}", stage.name)));
    } else {
      EXPECT_NO_THROW(make_codec(stage.name)) << stage.name;
    }
    EXPECT_FALSE(stage.rule.empty() || stage.bias.empty()) << stage.name;
  }
}

TEST(MakeCodec, AnswersAWrongNameWithTheNearestAndTheList) {
  EXPECT_THAT(refusal("bf61"), AllOf(HasSubstr("'bf61'"), HasSubstr("did you mean 'bf16'?")));
  EXPECT_THAT(refusal("int8+hufman"), AllOf(HasSubstr("'hufman'"), HasSubstr("did you mean 'huffman'?")));
}

TEST(MakeCodec, RefusesAValueOrSettingWhereNoneIsTaken) {
  EXPECT_THAT(refusal("bf16:8"), HasSubstr("'bf16' takes no value"));
  EXPECT_THAT(refusal("bf16:round=up"), AllOf(HasSubstr("'bf16'"), HasSubstr("'round'")));
  EXPECT_THAT(refusal("int8:blok=32"), AllOf(HasSubstr("'blok'"), HasSubstr("did you mean 'block'?")));
}

TEST(MakeCodec, RefusesParametersOutOfRange) {
  EXPECT_THAT(refusal("topk:2"), AllOf(HasSubstr("'topk'"), HasSubstr("to 1")));
  EXPECT_THAT(refusal("topk:many"), HasSubstr("'many'; give a number"));
  EXPECT_THAT(refusal("int8:block=100"), HasSubstr("power of two"));
  EXPECT_THAT(refusal("dct:128+topk:0.1"), HasSubstr("from 8 to 64"));
  EXPECT_THAT(refusal("eden:5"), HasSubstr("from 1 to 4"));
  EXPECT_THAT(refusal("eden:1.5"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("fp8:e3m4"), HasSubstr("the value of 'fp8' is 'e3m4'; give one of "));
  EXPECT_THAT(refusal("int8:rounding=nearst"), HasSubstr("is 'nearst'; give one of nearest, stochastic (did you mean "
                                                         "'nearest'?)"));
}

TEST(MakeCodec, RefusesAnImpossibleOrder) {
  EXPECT_THAT(refusal("rans+int8"), AllOf(HasSubstr("'int8' stands behind 'rans'"), HasSubstr("'int8' before it")));
  EXPECT_THAT(refusal("int8+topk"), HasSubstr("sparsify + transform + quantize + code"));
  EXPECT_THAT(refusal("dct+rans+topk:0.01+int8"), HasSubstr("'topk' stands behind 'rans'"));
  EXPECT_THAT(refusal("dct+dgc"), HasSubstr("write topk in its place"));
  EXPECT_THAT(refusal("dct+topk:0.1,layers=1"), HasSubstr("leave one of both out"));
  EXPECT_THAT(refusal("hadamard+dct+topk"), HasSubstr("the order is"));
  EXPECT_THAT(refusal("topk+topk"), HasSubstr("keep one"));
  EXPECT_THAT(refusal("powersgd:4"), HasSubstr("'powersgd' by itself is a spec"));
  EXPECT_THAT(refusal("int8+int4"), HasSubstr("which both quantize; keep one"));
  EXPECT_THAT(refusal("bf16+rans"), HasSubstr("write 'lossless'"));
  EXPECT_THAT(refusal("int4+lossless"), HasSubstr("'bf16+lossless'"));
}

TEST(MakeCodec, FeedsErrorsBackWhereThereIsBiasUnlessToldOtherwise) {
  EXPECT_EQ(make_codec("int8")->state_parts(), 1U);
  EXPECT_EQ(make_codec("int8:ef=0")->state_parts(), 0U);
  EXPECT_EQ(make_codec("qsgd")->state_parts(), 0U);
  EXPECT_EQ(make_codec("eden")->state_parts(), 1U) << "of one bit";
  EXPECT_EQ(make_codec("eden:ef=0")->state_parts(), 0U);
  EXPECT_EQ(make_codec("eden:2")->state_parts(), 0U);
  EXPECT_EQ(make_codec("qsgd:7,ef=1+rans")->state_parts(), 1U);
  EXPECT_EQ(make_codec("topk:0.1+qsgd")->state_parts(), 1U);
  EXPECT_THAT(refusal("int8:ef=yes"), HasSubstr("ef=0"));
}

TEST(MakeCodec, CodesChangesWhereItIsToldTo) {
  for (const std::string_view spec : {"delta+topk:0.1+int8", "topk:0.1,ef=21+int8", "delta+qsgd:7"}) {
    EXPECT_TRUE(make_codec(spec)->of_differences()) << spec;
    EXPECT_EQ(make_codec(spec)->state_parts(), 1U) << spec;
  }
  EXPECT_FALSE(make_codec("topk:0.1,ef=1")->of_differences());
  EXPECT_THAT(refusal("topk:0.1+delta"), HasSubstr("'delta+' once in front"));
  EXPECT_THAT(refusal("delta+delta+int8"), HasSubstr("'delta+' once in front"));
  EXPECT_THAT(refusal("delta+int8:ef=0"), HasSubstr("ef=0 refuses"));
  EXPECT_THAT(refusal("dgc:0.01,ef=21"), HasSubstr("topk in place of dgc"));
}

// One stage may say for the whole pipeline what another one contradicts, or what the pipeline does not have.
TEST(MakeCodec, RefusesWishesThatContradictEachOther) {
  EXPECT_THAT(refusal("topk:ef=21+int8:ef=0"),
              AllOf(HasSubstr("'topk' says ef=21 and 'int8' says ef=0"), HasSubstr("leave one of both out")));
  EXPECT_THAT(refusal("topk:ef=0+int8:ef=1"), HasSubstr("'topk' says ef=0 and 'int8' says ef=1"));
  EXPECT_THAT(refusal("topk:by=auto+int8:by=all_gather"),
              HasSubstr("'topk' says by=auto and 'int8' says by=all_gather"));
  EXPECT_THAT(refusal("topk:momentum=0.9+int8:momentum=0.5"),
              HasSubstr("says momentum=0.9 and 'int8' says momentum=0.5"));
  EXPECT_THAT(refusal("delta+lossless"), HasSubstr("'lossless' loses nothing"));
  EXPECT_THAT(refusal("bf16:ef=21+lossless"), HasSubstr("leave delta and ef=21 out"));
  EXPECT_THAT(refusal("lossless:ef=1"), HasSubstr("leave ef=1 out"));
  EXPECT_THAT(refusal("bf16+lossless:ef=1"), HasSubstr("leave ef=1 out"));
  for (const std::string_view spec : {"topk:ef=1+int8:ef=1", "delta+int8:ef=1", "delta+topk:ef=21", "lossless:ef=0",
                                      "topk:by=all_gather+int8:ef=0", "dgc:momentum=0.5+int8"})
    EXPECT_EQ(make_codec(spec)->spec(), spec);
}

TEST(MakeCodec, NamesWhatCanBeWrittenInstead) {
  EXPECT_THAT(refusal("safe+rans"), AllOf(HasSubstr("'safe' is a preset"), HasSubstr("qsgd:5,block=256+rans"),
                                          Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal("strong:ef=0"), HasSubstr("'strong' is a preset"));
  EXPECT_THAT(refusal("none"), HasSubstr("write fp32"));
  for (const std::string_view spec : {"powersgd:-1", "int8+demo:32,chunk=0", "thc:8"})
    EXPECT_THAT(refusal(spec), AllOf(HasSubstr("by itself is a spec there"), Not(HasSubstr("--compress")))) << spec;
  EXPECT_THAT(refusal("int4+rans:level=3"),
              AllOf(HasSubstr("'rans' takes no setting"), HasSubstr("leave 'level' out"), Not(HasSubstr("One of"))));
  for (const std::string_view spec : {"int8:block=7", "int8:block=100", "int8:block=8192", "int8:block=8.5"})
    EXPECT_THAT(refusal(spec), HasSubstr("give a power of two from 8 to 4096")) << spec;
}

// Which alone are unbiased, and whose error is fed back to nobody.
TEST(MakeCodec, RefusesToFeedBackWhatMayBeMoreThanTheValues) {
  for (const std::string_view spec : {"topk:0.1+qsgd:1,norm=l2", "delta+qsgd:7,norm=l2", "qsgd:1,norm=l2,momentum=0.9",
                                      "int4:norm=l2,rounding=stochastic,ef=1", "topk:0.1+qsgd:4,norm=l2,block=4096"})
    EXPECT_THAT(refusal(spec), HasSubstr("error feedback")) << spec;
  for (const std::string_view spec : {"qsgd:1,norm=l2", "topk:0.1+qsgd:16,norm=l2",
                                      "topk:0.1+qsgd:1,norm=l2,rounding=nearest", "topk:0.1+qsgd:1", "int4:norm=l2"})
    EXPECT_NO_THROW(make_codec(spec)) << spec;
}

TEST(MakeCodec, AddsMomentumBeforeErrorFeedbackWhereItIsToldTo) {
  for (const std::string_view spec : {"sign:momentum=0.9", "topk:0.1,momentum=0.9+int8", "qsgd:7,momentum=0.9"}) {
    EXPECT_EQ(make_codec(spec)->momentum(), 0.9) << spec;
    EXPECT_EQ(make_codec(spec)->state_parts(), 2U) << spec;
    EXPECT_EQ(make_codec(spec)->for_sums()->state_parts(), 1U) << spec;
    EXPECT_EQ(make_codec(spec)->for_sums()->momentum(), 0) << spec;
  }
  EXPECT_THAT(refusal("sign:momentum=1"), AllOf(HasSubstr("'sign'"), HasSubstr("up to 0.999")));
  EXPECT_THAT(refusal("sign:momentum=0.9,ef=0"), HasSubstr("ef=0 refuses"));
  EXPECT_THAT(refusal("dgc:0.1,ef=0"), HasSubstr("ef=0 refuses the error feedback that 'dgc' is made of"));
  EXPECT_THAT(refusal("delta+sign:momentum=0.9"), HasSubstr("changes of gradients"));
  EXPECT_THAT(refusal("dgc:0.01+int4:momentum=0.9"), HasSubstr("momentum of its own"));
  EXPECT_THAT(refusal("lossless:momentum=0.9"), HasSubstr("leave momentum= out"));
}

TEST(MakeCodec, SparseOnesGoTheCheaperWayAndAllGoAsTold) {
  EXPECT_EQ(make_codec("topk:0.1+int8")->way(), Way::cheaper);
  EXPECT_EQ(make_codec("int8")->way(), Way::reduce_scatter);
  EXPECT_EQ(make_codec("topk:0.1,by=reduce_scatter")->way(), Way::reduce_scatter);
  EXPECT_EQ(make_codec("int8:by=all_gather")->way(), Way::all_gather);
  EXPECT_THAT(refusal("int8:by=mail"), HasSubstr("by=all_gather"));
  // Also what could be added up in transit.
  for (const std::string_view spec : {"bf16", "fp16", "randk:0.1", "randk:0.1+bf16"}) {
    EXPECT_TRUE(make_codec(spec)->summable_as()) << spec;
    for (const std::string_view way : {"reduce_scatter", "all_gather"}) {
      const auto told = make_codec(fmt::format("{}{}by={}", spec, spec.ends_with("1") ? "," : ":", way));
      EXPECT_FALSE(told->summable_as()) << told->spec();
      EXPECT_EQ(told->way() == Way::all_gather, way == "all_gather") << told->spec();
    }
  }
}

TEST(MakeCodec, APresetIsTheSpecThatItNames) {
  for (const Preset& preset : presets()) {
    EXPECT_EQ(make_codec(preset.name)->spec(), preset.spec);
    EXPECT_EQ(spec_of(preset.name), preset.spec);
  }
  EXPECT_EQ(spec_of("int8"), "int8");
  EXPECT_THAT(refusal("saef"), HasSubstr("did you mean 'safe'?"));
}

TEST(MakeCodec, RefusesAnEmptySpec) { EXPECT_NE(refusal(""), "nothing was refused"); }

}  // namespace
}  // namespace ranvier
