#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/fnv.h"
#include "base/spec.h"
#include "codec/parameters.h"
#include "exchange/difference.h"
#include "exchange/owed_once.h"
#include "ranvier/demo.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/normalized.h"
#include "ranvier/shared_grid.h"
#include "ranvier/shared_scale.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

constexpr std::string_view plain = "none";

// A cast behind the rank codes the factors, whose rounding ends in the residual of the matrix; small tensors, which
// have none, stand it too. What rounds more than a cast would need error feedback for them.
ExchangePlan plan_low_rank(std::string_view spec) {
  const auto stages = parse_spec(spec);
  Parameters parameters(stages.front());
  const LowRankOptions options{.rank = parameters.count("", 4, 1, 64), .alternating = stages.front().name == "acpsgd"};
  parameters.end();
  const auto rest = spec.find('+');
  if (rest == std::string_view::npos) return {.codec = make_codec("fp32"), .low_rank = options};
  auto factors = make_codec(spec.substr(rest + 1));
  // A cast alone is summable from its first byte on.
  if (!factors->summable_as() || factors->summable_at() > 0 || factors->state_parts() > 0)
    throw Error(ErrorKind::usage,
                fmt::format("in the spec '{}' '{}' would code factors and small tensors, which are added up in transit "
                            "and have no error feedback; write bf16 or fp16 behind '{}' without settings, or nothing",
                            spec, factors->spec(), stages.front().name));
  return {.codec = std::move(factors), .low_rank = options};
}

void demand_alone(std::string_view spec, std::span<const StageSpec> stages, std::string_view why) {
  if (stages.size() > 1)
    throw Error(ErrorKind::usage, fmt::format("in the spec '{}' '{}' stands behind '{}', whose codes {}; leave it out",
                                              spec, stages[1].name, stages.front().name, why));
}

ExchangePlan plan_shared_grid(std::string_view spec) {
  const auto stages = parse_spec(spec);
  Parameters parameters(stages.front());
  const std::size_t bits = parameters.count("", 8, 4, 8);
  parameters.end();
  if (bits != 4 && bits != 8)
    throw Error(ErrorKind::usage, fmt::format("'{}' asks for fields of {} bits; write thc:4 or thc:8", spec, bits));
  demand_alone(spec, stages, "travel as they are, to be added");
  return {.grid_bits = static_cast<unsigned>(bits)};
}

ExchangePlan plan_shared_scale(std::string_view spec) {
  const auto stages = parse_spec(spec);
  Parameters(stages.front()).end();
  demand_alone(spec, stages, "travel as they are, to be added");
  return {.shared_scale = true};
}

ExchangePlan plan_demo(std::string_view spec) {
  const auto stages = parse_spec(spec);
  Parameters parameters(stages.front());
  constexpr std::array<std::string_view, 2> no_or_yes{"0", "1"};
  const DemoOptions options{.kept = parameters.count("", 32, 1, 4096),
                            .chunk = parameters.count("chunk", 64, 1, 64),
                            .decay = parameters.number("decay", 0.999, 0, 0.9999),
                            .sign = parameters.choice("sign", "1", no_or_yes) == "1"};
  parameters.end();
  demand_alone(spec, stages, "have a format of their own");
  return {.demo = options};
}

}  // namespace

ExchangePlan plan_exchange(std::string_view preset_or_spec) {
  const std::string_view spec = spec_of(preset_or_spec);
  if (spec == plain) return {};
  try {
    const auto first = spec.substr(0, spec.find_first_of(":+"));
    if (first == "powersgd" || first == "acpsgd") return plan_low_rank(spec);
    if (first == "thc") return plan_shared_grid(spec);
    if (first == "switchml") return plan_shared_scale(spec);
    if (first == "demo") return plan_demo(spec);
    return {.codec = make_codec(spec)};
  } catch (const Error& unknown) {
    const bool meant_plain = !nearest(spec, std::array{plain}).empty();
    throw Error(ErrorKind::usage, fmt::format("{}; '{}'{} sends values as they are", unknown.what(), plain,
                                              meant_plain ? " (did you mean that?)" : ""));
  }
}

void demand_same_spec(std::string_view spec, Communicator& comm) {
  const std::array<std::int64_t, 1> own{static_cast<std::int64_t>(fnv1a(spec))};
  const auto world = static_cast<std::size_t>(comm.world());
  std::vector<std::int64_t> all(world);
  comm.all_gather(own, all);
  const auto other = std::ranges::find_if(all, [&](std::int64_t sum) { return sum != all.front(); });
  if (other == all.end()) return;
  // All ranks get here alike, and only now need the words.
  std::array<std::uint8_t, 256> words{};
  std::copy_n(spec.begin(), std::min(spec.size(), words.size()), words.begin());
  std::vector<std::uint8_t> everybodys(words.size() * world);
  comm.all_gather(words, everybodys);
  const auto spec_of_rank = [&](std::size_t rank) {
    const auto begin = everybodys.begin() + static_cast<std::ptrdiff_t>(rank * words.size());
    return std::string(begin, std::find(begin, begin + static_cast<std::ptrdiff_t>(words.size()), 0));
  };
  const auto differs = static_cast<std::size_t>(other - all.begin());
  throw Error(
      ErrorKind::mismatch,
      fmt::format("{} compresses with '{}' and {} with '{}'; give the same spec to every rank", comm.rank_name(0),
                  spec_of_rank(0), comm.rank_name(static_cast<Rank>(differs)), spec_of_rank(differs)),
      static_cast<Rank>(differs));
}

std::unique_ptr<Exchange> make_exchange(std::string_view spec, Communicator& comm) {
  // The others, who wait here, are told of a spec that this rank cannot follow before it says what is wrong with that.
  ExchangePlan plan;
  std::optional<Error> wrong;
  try {
    plan = plan_exchange(spec);
  } catch (const Error& problem) {
    wrong = problem;
  }
  try {
    demand_same_spec(spec, comm);
  } catch (const Error&) {
    if (!wrong) throw;
  }
  if (wrong) throw *wrong;
  std::string name(plan.codec && !plan.low_rank ? plan.codec->spec() : spec);
  const bool is_plain = !plan.codec && plan.grid_bits == 0 && !plan.shared_scale && !plan.demo;
  // A rank that goes on alone sends nothing that a code could shorten; what momentum or signs make of gradients stays.
  if (is_plain || (comm.world() == 1 && plan.momentum() == 0 && !plan.demo))
    return owed_once(std::move(name), dense_exchange(comm), comm.world());
  if (plan.grid_bits > 0) return shared_grid_exchange(comm, std::move(name), plan.grid_bits);
  if (plan.demo) return demo_exchange(comm, std::move(name), *plan.demo);
  if (plan.shared_scale) return shared_scale_exchange(comm, std::move(name));
  if (plan.low_rank) return low_rank_exchange(comm, std::move(name), *plan.low_rank, std::move(plan.codec));
  const bool of_differences = plan.codec->of_differences(), holds_back = plan.codec->state_parts() > 0,
             is_normalized = plan.codec->of_normalized();
  auto exchange = plan.codec->summable_as() ? summable_exchange(comm, std::move(plan.codec))
                                            : coded_exchange(comm, std::move(plan.codec));
  if (of_differences) return difference_exchange(std::move(exchange), comm.world());
  if (is_normalized) exchange = normalized_exchange(std::move(exchange), name, comm.world());
  return holds_back ? std::move(exchange) : owed_once(std::move(name), std::move(exchange), comm.world());
}

void check_exchange(std::string_view spec) { plan_exchange(spec); }

}  // namespace ranvier
