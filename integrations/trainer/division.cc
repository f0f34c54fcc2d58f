#include "integrations/trainer/division.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/spec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::trainer {
namespace {

// The most parts: of tensors rows between two layers, or heads, of a pipeline the pieces of image_models.cc and
// text_models.cc. 0: not cut so.
struct Limit {
  std::string_view model;
  Rank tensor;
  Rank pipeline;
};
constexpr std::array limits{Limit{"cnn", 120, 4}, Limit{"mlp", 128, 2}, Limit{"resnet", 0, 5}, Limit{"lstm", 0, 3},
                            Limit{"transformer", 4, 5}};

constexpr std::array<std::string_view, 3> ways{"none", "tensor", "pipeline"};

}  // namespace

Division parse_division(std::string_view spec) {
  const auto stages = parse_spec(spec);
  const StageSpec& stage = stages.front();
  const auto way = std::find(ways.begin(), ways.end(), stage.name);
  if (way == ways.end()) throw Error(ErrorKind::usage, unknown_name("division", stage.name, ways));
  const auto parts = stage.name == "none" && stage.value.empty() ? 1 : parse_number<Rank>(stage.value);
  const bool is_none = stage.name == "none";
  if (stages.size() > 1 || !stage.settings.empty() || !parts || (is_none ? !stage.value.empty() : *parts < 2))
    throw Error(ErrorKind::usage,
                fmt::format("--parallel '{}' does not say among how many workers a model is divided, 2 or more; write "
                            "tensor:2, pipeline:2 or none",
                            spec));
  return {.way = static_cast<Division::Way>(way - ways.begin()), .parts = *parts};
}

void check_division(const Division& division, std::string_view model, Rank world) {
  if (division.way == Division::Way::whole) return;
  const bool by_tensor = division.way == Division::Way::tensor;
  const auto limit = std::find_if(limits.begin(), limits.end(), [&](const Limit& each) { return each.model == model; });
  const Rank most = limit == limits.end() ? 0 : by_tensor ? limit->tensor : limit->pipeline;
  const std::string_view way = ways[static_cast<std::size_t>(division.way)];
  if (most == 0)
    throw Error(ErrorKind::usage,
                fmt::format("--model {} cannot be divided by --parallel {}; tensor takes cnn, mlp and transformer, "
                            "pipeline also resnet and lstm",
                            model, way));
  if (division.parts > most)
    throw Error(ErrorKind::usage, fmt::format("--model {} has {} parts at most for --parallel {}, and not {}", model,
                                              most, way, division.parts));
  if (world % division.parts != 0)
    throw Error(ErrorKind::usage, fmt::format("{} workers are no whole number of replicas of {} each; start a multiple "
                                              "of {}",
                                              world, division.parts, division.parts));
}

}  // namespace ranvier::trainer
