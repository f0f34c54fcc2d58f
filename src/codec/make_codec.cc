// From a spec to a codec: the stages in their order, then the pipeline that they make.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/spec.h"
#include "codec/catalogue.h"
#include "codec/dense_codec.h"
#include "codec/lossless_codec.h"
#include "codec/sparse_codec.h"
#include "codec/transformed_codec.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

const Stage& find_stage(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Stage& stage : stages()) {
    if (stage.info.name == name) return stage;
    names.push_back(stage.info.name);
  }
  throw Error(ErrorKind::usage, unknown_name("codec stage", name, names));
}

// Any stage may carry ef=0 or ef=1; it speaks for the whole pipeline.
std::optional<bool> take_feedback(StageSpec& stage) {
  std::optional<bool> feedback;
  std::erase_if(stage.settings, [&](const auto& setting) {
    if (setting.first != "ef") return false;
    if (setting.second != "0" && setting.second != "1")
      throw Error(ErrorKind::usage,
                  fmt::format("'ef={}' of the stage '{}' is neither ef=0 (no error feedback) nor ef=1", setting.second,
                              stage.name));
    feedback = setting.second == "1";
    return true;
  });
  return feedback;
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

}  // namespace

std::unique_ptr<Codec> make_codec(std::string_view spec) {
  Draft draft;
  std::optional<bool> feedback;
  const StageInfo* before = nullptr;
  std::string_view last_quantizer = "fp32";
  for (StageSpec& parsed : parse_spec(spec)) {
    const Stage& stage = find_stage(parsed.name);
    if (stage.add == nullptr)
      throw Error(ErrorKind::usage,
                  fmt::format("'{}' in the spec '{}' is a way to average whole tensors and no stage of a "
                              "codec; it stands first, and where gradients are exchanged: train "
                              "--compress {}:4",
                              stage.info.name, spec, stage.info.name));
    // The one exception from the order: coefficients of a transform may be sparsified instead of values.
    const bool of_coefficients =
        stage.info.kind == StageKind::sparsify && !draft.sparsifier && !draft.quantizer && draft.transforms.size() == 1;
    if (!of_coefficients) check_order(spec, before, stage.info);
    before = &stage.info;
    if (const auto chosen = take_feedback(parsed)) feedback = chosen;
    Parameters parameters(parsed);
    stage.add(parameters, draft);
    parameters.end();
    if (of_coefficients) {
      draft.outer = std::move(draft.transforms.front());
      draft.transforms.clear();
    }
    if (stage.info.kind == StageKind::quantize) last_quantizer = stage.info.name;
  }

  const std::string name(spec);
  if (draft.lossless) {
    if (draft.sparsifier || !draft.transforms.empty() || (last_quantizer != "fp32" && last_quantizer != "bf16"))
      throw Error(ErrorKind::usage,
                  fmt::format("in the spec '{}' the stage 'lossless' stands behind more than bf16; it "
                              "takes floats as they are: write 'lossless' or 'bf16+lossless', or "
                              "another coder",
                              spec));
    return lossless_codec(name, last_quantizer == "bf16" ? DType::bf16 : DType::f32);
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
  const bool wanted = feedback.value_or(draft.biased);
  DenseStages dense{std::move(draft.transforms), std::move(draft.quantizer), std::move(draft.coder)};
  if (!draft.sparsifier) return dense_codec(name, std::move(dense), wanted);
  auto values = dense_codec(name, std::move(dense), false);
  if (!draft.outer) return sparse_codec(name, std::move(draft.sparsifier), std::move(values), wanted);
  if (draft.sparsifier->momentum() > 0)
    throw Error(ErrorKind::usage,
                fmt::format("in the spec '{}' a transform stands before 'dgc', whose momentum belongs to "
                            "values; write topk in its place, or leave the transform out",
                            spec));
  return transformed_codec(name, std::move(draft.outer),
                           sparse_codec(name, std::move(draft.sparsifier), std::move(values), false), wanted);
}

}  // namespace ranvier
