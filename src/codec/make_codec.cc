// From a spec to a codec: the stages in their order, then the pipeline that they make.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/spec.h"
#include "codec/catalogue.h"
#include "codec/dense_codec.h"
#include "codec/lossless_codec.h"
#include "codec/momentum_codec.h"
#include "codec/sparse_codec.h"
#include "codec/transformed_codec.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

const Stage& find_stage(std::string_view spec, std::string_view name) {
  for (const Preset& preset : presets())
    if (preset.name == name)
      throw Error(ErrorKind::usage,
                  fmt::format("'{}' is a preset and no stage, so in the spec '{}' it cannot stand with "
                              "others or settings; write what it stands for: '{}'",
                              name, spec, preset.spec));
  if (name == "none")
    throw Error(ErrorKind::usage,
                fmt::format("'none' in the spec '{}' is no stage of a codec but says that there is no "
                            "codec; write fp32 for floats as they are",
                            spec));
  std::vector<std::string_view> names;
  for (const Stage& stage : stages()) {
    if (stage.info.name == name) return stage;
    names.push_back(stage.info.name);
  }
  for (const Preset& preset : presets()) names.push_back(preset.name);
  throw Error(ErrorKind::usage, unknown_name("codec stage", name, names));
}

// What any stage may say for the whole pipeline.
struct Wishes {
  std::optional<bool> feedback;
  double momentum = 0;
  bool differences = false;
  std::optional<Way> way;
  struct Said {
    std::string_view stage, key, word;
  };
  std::vector<Said> said;
};

void demand_agreement(std::string_view spec, const Wishes::Said& saying, Wishes& wishes) {
  for (const auto& [stage, key, word] : wishes.said)
    if (key == saying.key && word != saying.word)
      throw Error(ErrorKind::usage,
                  fmt::format("in the spec '{}' '{}' says {}={} and '{}' says {}={}, and both speak of "
                              "all of it; leave one of both out",
                              spec, stage, key, word, saying.stage, key, saying.word));
  wishes.said.push_back(saying);
}

void take_wishes(std::string_view spec, StageSpec& stage, Wishes& wishes) {
  std::erase_if(stage.settings, [&](const auto& setting) {
    const auto& [key, word] = setting;
    if (key == "ef") {
      if (word != "0" && word != "1" && word != "21")
        throw Error(ErrorKind::usage, fmt::format("'ef={}' of the stage '{}' is none of ef=0 (no error feedback), ef=1 "
                                                  "and ef=21 (codes of changes)",
                                                  word, stage.name));
      wishes.feedback = word != "0";
      wishes.differences = word == "21";
    } else if (key == "by") {
      if (word != "auto" && word != "reduce_scatter" && word != "all_gather")
        throw Error(ErrorKind::usage, fmt::format("'by={}' of the stage '{}' is none of by=auto, by=reduce_scatter and "
                                                  "by=all_gather",
                                                  word, stage.name));
      wishes.way = word == "auto" ? Way::cheaper : word == "all_gather" ? Way::all_gather : Way::reduce_scatter;
    }
    const bool is_momentum = key == "momentum" && stage.name != "dgc";  // whose own it is
    if (is_momentum) {
      const auto number = parse_number<double>(word);
      if (!number || *number <= 0 || *number > 0.999)
        throw Error(
            ErrorKind::usage,
            fmt::format("'momentum={}' of the stage '{}' is no number above 0 and up to 0.999", word, stage.name));
      wishes.momentum = *number;
    }
    const bool is_wish = key == "ef" || key == "by" || is_momentum;
    if (is_wish) demand_agreement(spec, {stage.name, key, word}, wishes);
    return is_wish;
  });
}

void check_order(std::string_view spec, const StageInfo* before, const StageInfo& stage) {
  if (before == nullptr || before->kind < stage.kind) return;
  if (before->kind == StageKind::transform && stage.kind == StageKind::transform) return;
  if (before->kind == stage.kind)
    throw Error(ErrorKind::usage, fmt::format("the spec '{}' has '{}' and '{}', which both {}; keep one of them", spec,
                                              before->name, stage.name, name_of(stage.kind)));
  throw Error(ErrorKind::usage,
              fmt::format("in the spec '{}' the stage '{}' stands behind '{}'; the order is sparsify + transform + "
                          "quantize + code, so write '{}' before it",
                          spec, stage.name, before->name, stage.name));
}

void check_momentum(std::string_view spec, const Draft& draft, const Wishes& wishes) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::usage, fmt::format("in the spec '{}' {}", spec, why));
  };
  if (wishes.feedback == false)
    refuse("ef=0 refuses the error feedback that momentum= belongs to; leave one of both out");
  if (wishes.differences || draft.differences)
    refuse("changes of gradients would be coded, and momentum= adds gradients up; leave one of both out");
  if (draft.sparsifier && draft.sparsifier->momentum() > 0)
    refuse("'dgc' has a momentum of its own; write momentum= on that stage");
  if (draft.lossless) refuse("'lossless' loses nothing that momentum= could be of use to; leave momentum= out");
}

// Residuals, of values or of momentum, would be in units that change.
void check_normalized(std::string_view spec, const Draft& draft, const Wishes& wishes) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorKind::usage, fmt::format("in the spec '{}' 'normalize' {}", spec, why));
  };
  if (draft.differences || wishes.differences) refuse("stands beside codes of changes; leave one of both out");
  if (wishes.feedback == true) refuse("has no error feedback; leave ef=1 or normalize out");
  if (wishes.momentum > 0) refuse("has no error feedback, which momentum= belongs to; leave one of both out");
  if (draft.sparsifier)
    refuse("has no error feedback, without which a sparsifier loses what it does not choose; leave one of both out");
  if (draft.lossless) refuse("stands before 'lossless', which loses nothing; leave normalize out");
}

std::unique_ptr<Codec> make_without_momentum(std::string_view spec, Wishes& wishes) {
  Draft draft;
  const StageInfo* before = nullptr;
  std::string_view last_quantizer = "fp32";
  for (StageSpec& parsed : parse_spec(spec)) {
    const Stage& stage = find_stage(spec, parsed.name);
    if (stage.add == nullptr)
      throw Error(ErrorKind::usage,
                  fmt::format("'{0}' in the spec '{1}' is a way to average whole buckets and no stage of a codec; it "
                              "stands first, and only where gradients are exchanged: '{0}' by itself is a spec there; "
                              "leave it out here",
                              stage.info.name, spec));
    const bool is_delta = stage.info.name == "delta", is_of_all = is_delta || stage.info.name == "normalize";
    if (is_of_all && (before != nullptr || (is_delta ? draft.differences : draft.normalized)))
      throw Error(ErrorKind::usage,
                  fmt::format("in the spec '{0}' '{1}' does not stand first; all of it codes {2}, so write '{1}+' "
                              "once in front of it",
                              spec, stage.info.name, is_delta ? "changes" : "values over what is usual"));
    // The one exception from the order: coefficients of a transform may be sparsified instead of values.
    const bool of_coefficients = stage.info.kind == StageKind::sparsify && !draft.sparsifier && !draft.quantizer &&
                                 !draft.coder && !draft.lossless && draft.transforms.size() == 1;
    if (!of_coefficients) check_order(spec, before, stage.info);
    take_wishes(spec, parsed, wishes);
    Parameters parameters(parsed);
    stage.add(parameters, draft);
    parameters.end();
    // What stands behind these codes as it would code values, in the same order.
    if (!is_of_all) before = &stage.info;
    if (of_coefficients) {
      draft.outer = std::move(draft.transforms.front());
      draft.transforms.clear();
    }
    if (stage.info.kind == StageKind::quantize) last_quantizer = stage.info.name;
  }

  if (wishes.momentum > 0) check_momentum(spec, draft, wishes);
  if (draft.normalized) check_normalized(spec, draft, wishes);
  if (wishes.feedback == false && draft.sparsifier && draft.sparsifier->momentum() > 0)
    throw Error(ErrorKind::usage,
                fmt::format("in the spec '{}' ef=0 refuses the error feedback that 'dgc' is made of; leave "
                            "it out, or write topk in place of dgc",
                            spec));
  const bool differences = wishes.differences || draft.differences;
  if (differences && wishes.feedback == false)
    throw Error(ErrorKind::usage,
                fmt::format("in the spec '{}' ef=0 refuses the error feedback without which what codes of "
                            "changes lose would add up; leave it out",
                            spec));
  if (differences && draft.sparsifier && draft.sparsifier->momentum() > 0)
    throw Error(ErrorKind::usage,
                fmt::format("in the spec '{}' changes of gradients would be coded, and 'dgc' codes sums of "
                            "their momentum; leave delta and ef=21 out, or write topk in place of dgc",
                            spec));
  PipelineSettings settings{
      .spec = std::string(spec),
      .feedback = wishes.feedback.value_or((draft.biased && !draft.normalized) || wishes.momentum > 0),
      .differences = differences,
      .normalized = draft.normalized,
      .way = wishes.way.value_or(draft.sparsifier ? Way::cheaper : Way::reduce_scatter),
      .way_is_told = wishes.way.has_value()};
  // What is held back would be more at each step: alone these are unbiased, and nothing is.
  if (settings.feedback && draft.variance >= 1)
    throw Error(
        ErrorKind::usage,
        fmt::format("in the spec '{}' '{}' may lose {:.2g} times the values by norm=l2, and error feedback, which {} "
                    "wants, would never make up for that: write norm=max, rounding=nearest, more steps or a "
                    "smaller block",
                    spec, last_quantizer, draft.variance,
                    wishes.feedback == true ? "ef=1"
                    : draft.sparsifier      ? "a sparsifier"
                    : differences           ? "delta"
                                            : "momentum="));
  PipelineSettings inner{.spec = settings.spec};
  if (draft.lossless) {
    if (draft.sparsifier || !draft.transforms.empty() || (last_quantizer != "fp32" && last_quantizer != "bf16"))
      throw Error(ErrorKind::usage,
                  fmt::format("in the spec '{}' the stage 'lossless' stands behind more than bf16; it "
                              "takes floats as they are: write 'lossless' or 'bf16+lossless', or "
                              "another coder",
                              spec));
    if (differences || wishes.feedback == true)
      throw Error(
          ErrorKind::usage,
          fmt::format("in the spec '{}' 'lossless' loses nothing that {} could make up for; leave {} out", spec,
                      differences ? "codes of changes" : "error feedback", differences ? "delta and ef=21" : "ef=1"));
    settings.feedback = false;
    return lossless_codec(std::move(settings), last_quantizer == "bf16" ? DType::bf16 : DType::f32);
  }
  if (!draft.quantizer) {
    StageSpec plain{.name = "fp32", .value = {}, .settings = {}};
    Parameters none(plain);
    add_fp32(none, draft);
  }
  if (draft.coder && draft.quantizer->levels() == 0)
    throw Error(ErrorKind::usage, fmt::format("in the spec '{}' the stage '{}' takes symbols of a byte, and '{}' makes "
                                              "larger ones; quantize to 8 bits or fewer before it, or write 'lossless'",
                                              spec, draft.coder->name(), last_quantizer));
  DenseStages dense{std::move(draft.transforms), std::move(draft.quantizer), std::move(draft.coder)};
  if (!draft.sparsifier) return dense_codec(std::move(settings), std::move(dense));
  auto values = dense_codec(inner, std::move(dense));
  if (!draft.outer) return sparse_codec(std::move(settings), std::move(draft.sparsifier), std::move(values));
  if (draft.sparsifier->momentum() > 0)
    throw Error(ErrorKind::usage,
                fmt::format("in the spec '{}' a transform stands before 'dgc', whose momentum belongs to "
                            "values; write topk in its place, or leave the transform out",
                            spec));
  if (draft.sparsifier->layers())
    throw Error(
        ErrorKind::usage,
        fmt::format("in the spec '{}' a transform stands before 'layers', and its coefficients belong to runs of "
                    "values and not to tensors; leave one of both out",
                    spec));
  return transformed_codec(std::move(settings), std::move(draft.outer),
                           sparse_codec(std::move(inner), std::move(draft.sparsifier), std::move(values)));
}

}  // namespace

std::unique_ptr<Codec> make_codec(std::string_view preset_or_spec) {
  Wishes wishes;
  auto codec = make_without_momentum(spec_of(preset_or_spec), wishes);
  return wishes.momentum > 0 ? momentum_codec(std::move(codec), wishes.momentum) : std::move(codec);
}

}  // namespace ranvier
