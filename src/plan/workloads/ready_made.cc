// Ready-made workloads by name, with the published hyper-parameters of each:
//   gpt3         T. Brown et al.: Language models are few-shot learners. NeurIPS 2020: 96 blocks of 12,288
//   turing-nlg   C. Rosset: Turing-NLG: A 17-billion-parameter language model by Microsoft. 2020: 78 blocks of 4,256
//   msft-1t      the 1T model of S. Rajbhandari et al.: ZeRO: Memory optimizations toward training trillion parameter
//                models. SC 2020, as LIBRA has it: hidden size 24,576
//   llama3-*     A. Dubey et al.: The Llama 3 herd of models. arXiv:2407.21783, table 3
//   mixtral-8x7b A. Jiang et al.: Mixtral of experts. arXiv:2401.04088, table 1
// The first three come with two blocks, and with batches and degrees, as LIBRA's bundled ones do (time is proportional
// to the blocks): its published results are reproduced by default.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/spec.h"
#include "base/split.h"
#include "plan/workloads/models.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

using plan::TransformerModel;
using plan::WorkloadSizes;

TransformerModel gpt(double hidden, double heads, WorkloadSizes defaults) {
  return {.hidden = hidden,
          .blocks = 2,
          .heads = heads,
          .key_value_heads = heads,
          .feed_forward = 4 * hidden,
          .gathers_activations = true,
          .defaults = defaults};
}

TransformerModel llama(double hidden, int blocks, double heads, double feed_forward) {
  return {.hidden = hidden,
          .blocks = blocks,
          .heads = heads,
          .key_value_heads = 8,
          .feed_forward = feed_forward,
          .gated = true,
          .vocabulary = 128'256,
          .defaults = {.batch = 4, .sequence = 8192}};
}

struct ReadyMade {
  std::string_view name;
  Degrees degrees;
  Workload (*make)(std::string_view name, const Degrees&, const WorkloadSizes&);
  TransformerModel (*divides)() = nullptr;  // of those that can be divided
};

template <TransformerModel (*model)()>
Workload make_transformer(std::string_view name, const Degrees& degrees, const WorkloadSizes& sizes) {
  return plan::transformer(name, model(), degrees, sizes);
}

TransformerModel gpt3() { return gpt(12'288, 96, {.batch = 16, .sequence = 2048}); }
TransformerModel turing_nlg() { return gpt(4256, 28, {.batch = 16, .sequence = 512}); }
TransformerModel msft_1t() { return gpt(24'576, 192, {.batch = 8, .sequence = 2048}); }
TransformerModel llama3_8b() { return llama(4096, 32, 32, 14'336); }
TransformerModel llama3_70b() { return llama(8192, 80, 64, 28'672); }
TransformerModel llama3_405b() { return llama(16'384, 126, 128, 53'248); }
TransformerModel mixtral() {
  return {.hidden = 4096,
          .blocks = 32,
          .heads = 32,
          .key_value_heads = 8,
          .feed_forward = 14'336,
          .gated = true,
          .vocabulary = 32'000,
          .experts = 8,
          .experts_per_token = 2,
          .defaults = {.batch = 4, .sequence = 4096}};
}

constexpr std::array ready_made{
    ReadyMade{"resnet50",
              {},
              [](std::string_view, const Degrees& d, const WorkloadSizes& s) { return plan::resnet50(d, s); }},
    ReadyMade{"dlrm", {}, [](std::string_view, const Degrees& d, const WorkloadSizes& s) { return plan::dlrm(d, s); }},
    ReadyMade{"turing-nlg", {}, make_transformer<turing_nlg>, turing_nlg},
    ReadyMade{"gpt3", {.tensor = 16}, make_transformer<gpt3>, gpt3},
    ReadyMade{"msft-1t", {.tensor = 128}, make_transformer<msft_1t>, msft_1t},
    ReadyMade{"llama3-8b", {}, make_transformer<llama3_8b>, llama3_8b},
    ReadyMade{"llama3-70b", {.tensor = 8}, make_transformer<llama3_70b>, llama3_70b},
    ReadyMade{"llama3-405b", {.tensor = 8, .pipeline = 16}, make_transformer<llama3_405b>, llama3_405b},
    ReadyMade{"mixtral-8x7b", {.expert = 8}, make_transformer<mixtral>, mixtral}};

// Llama 3 405B has 126.
constexpr int most_layers = 10'000;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

int whole_number(std::string_view key, std::string_view text) {
  const auto number = parse_number<int>(text);
  constexpr int most = 1 << 24;
  if (!number || *number < 1 || *number > most)
    refuse(fmt::format("{}={} of a workload is no whole number from 1 to {}", key, text, most));
  if (key == "layers" && *number > most_layers)
    refuse(fmt::format("{}={} of a workload is more than {}; name fewer", key, text, most_layers));
  return *number;
}

// Models whose layers are not divided.
void check_replicated(std::string_view name, std::string_view key) {
  constexpr std::array<std::string_view, 2> known{"dp", "batch"};
  if (std::ranges::count(known, key) == 0)
    refuse(fmt::format("{} is not divided and has no setting {}; it takes {}", name, key, fmt::join(known, ", ")));
}

void check_divided(const ReadyMade& made, const Degrees& degrees, const WorkloadSizes& sizes) {
  const TransformerModel model = made.divides();
  if (model.experts == 1 && degrees.expert > 1)
    refuse(fmt::format("{} has no experts for ep={} to divide; leave it out", made.name, degrees.expert));
  if (model.experts % degrees.expert != 0)
    refuse(fmt::format("ep={} does not divide the {} experts of {}; name a divisor", degrees.expert, model.experts,
                       made.name));
  // LIBRA's own 128 for the 192 heads of MSFT-1T.
  const bool is_published = degrees.tensor == made.degrees.tensor;
  if (!is_published && static_cast<int>(model.heads) % degrees.tensor != 0)
    refuse(fmt::format("tp={} does not divide the {} attention heads of {}; name a divisor", degrees.tensor,
                       model.heads, made.name));
  const int batch = sizes.batch > 0 ? sizes.batch : model.defaults.batch;
  if (sizes.microbatches > 0 && batch % sizes.microbatches != 0)
    refuse(fmt::format(
        "microbatches={} do not divide the {} sequences of {} that a replica has in a step; name a divisor, "
        "or another batch=",
        sizes.microbatches, batch, made.name));
  const int blocks = sizes.layers > 0 ? sizes.layers : model.blocks;
  if (degrees.pipeline > blocks)
    refuse(fmt::format("pp={} stages are more than the {} blocks of {}; name fewer, or more layers=", degrees.pipeline,
                       blocks, made.name));
}

}  // namespace

std::optional<plan::DivisibleModel> plan::divisible_model(std::string_view name) {
  for (const ReadyMade& each : ready_made) {
    if (each.name != name || each.divides == nullptr) continue;
    const TransformerModel model = each.divides();
    return DivisibleModel{static_cast<int>(model.key_value_heads), static_cast<int>(model.heads), model.blocks,
                          model.defaults.batch};
  }
  return std::nullopt;
}

std::span<const std::string_view> workload_names() {
  static constexpr auto names = [] {
    std::array<std::string_view, ready_made.size()> result;
    for (std::size_t i = 0; i < ready_made.size(); ++i) result[i] = ready_made[i].name;
    return result;
  }();
  return names;
}

Workload make_workload(std::string_view spec) {
  const auto colon = spec.find(':');
  const auto whose = spec.substr(0, colon);
  if (colon != std::string_view::npos && std::ranges::count(workload_names(), whose) > 0)
    for (const auto setting : split(spec.substr(colon + 1), ','))
      if (setting.empty())
        refuse(fmt::format("workload '{}' has an empty setting; write {}, or {}:tp=8,batch=16", spec, whose, whose));
  const auto stages = parse_spec(spec);
  const StageSpec& stage = stages.front();
  if (stages.size() > 1) throw Error(ErrorKind::usage, fmt::format("'{}' joins several workloads; name one", spec));
  for (const ReadyMade& model : ready_made) {
    if (model.name != stage.name) continue;
    if (!stage.value.empty())
      throw Error(ErrorKind::usage, fmt::format("workload '{}' takes settings, not '{}'; write {}:tp=8,batch=16",
                                                stage.name, stage.value, stage.name));
    Degrees degrees = model.degrees;
    WorkloadSizes sizes;
    const std::pair<std::string_view, int*> settings[] = {
        {"tp", &degrees.tensor},   {"dp", &degrees.data},
        {"pp", &degrees.pipeline}, {"ep", &degrees.expert},
        {"batch", &sizes.batch},   {"sequence", &sizes.sequence},
        {"layers", &sizes.layers}, {"microbatches", &sizes.microbatches}};
    for (const auto& [key, value] : stage.settings) {
      std::vector<std::string_view> names;
      int* found = nullptr;
      for (const auto& [name, number] : settings) {
        names.push_back(name);
        if (name == key) found = number;
      }
      if (found == nullptr) throw Error(ErrorKind::usage, unknown_name("setting of a workload", key, names));
      if (model.divides == nullptr) check_replicated(model.name, key);
      *found = whole_number(key, value);
    }
    if (model.divides != nullptr) check_divided(model, degrees, sizes);
    return model.make(model.name, degrees, sizes);
  }
  throw Error(ErrorKind::usage, unknown_name("workload", stage.name, workload_names()));
}

}  // namespace ranvier
