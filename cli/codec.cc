// ranvier codec: what codecs make of a file of floats, and what stages there are.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "codec/float_file.h"
#include "codec/measure.h"
#include "commands.h"
#include "machine.h"
#include "output.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

constexpr auto codec_examples = R"(
A codec is written as stages joined by '+': sparsify + transform + quantize + code, each of them optional. Errors are those
of one encoding; in training, error feedback sends later what a biased codec has lost (ef=0 refuses it).
FILE holds raw little-endian f32, or is a .npy of floats.

Examples:
  ranvier codec list
  ranvier codec gradients.npy --spec hadamard:32+int4+rans
  ranvier codec gradients.npy --spec bf16 --spec int8:rounding=stochastic --json -
  ranvier codec gradients.npy --compare
)";

// What docs/codecs.md recommends, from the most careful to the boldest.
constexpr std::array<std::string_view, 15> recommended{
    "lossless", "bf16", "fp16",           "int8", "natural",     "hadamard:32+int4", "qsgd:7+rans", "eden:2",
    "eden:1",   "sign", "topk:0.01+int8", "safe", "transformer", "strong",           "extreme"};

void print_stages(const CodecRow& row) {
  double encode_before = 0, decode_before = 0;  // seconds for a gigabyte
  for (const CodecSpeed& stage : row.stages) {
    const std::string name = stage.spec.substr(stage.spec.rfind('+') + 1);
    fmt::print("  up to {:<26} {:>51.2f} {:>12.2f}   (alone {:.3f} and {:.3f} s a GB)\n", name, stage.encode_gbps,
               stage.decode_gbps, std::max(0.0, 1 / stage.encode_gbps - encode_before),
               std::max(0.0, 1 / stage.decode_gbps - decode_before));
    encode_before = 1 / stage.encode_gbps;
    decode_before = 1 / stage.decode_gbps;
  }
}

void print(const CodecRow& row) {
  fmt::print("{:<34} {:>8.3f} {:>7.1f} {:>9.4f} {:>9.5f} {:>9.2g} {:>9.2f} {:>12.2f}\n", row.spec, row.bits_per_value,
             32 / row.bits_per_value, row.relative_error, row.cosine, row.largest_error, row.encode_gbps,
             row.decode_gbps);
}

int list_stages(const JsonFile& file, bool prints) {
  nlohmann::json list = nlohmann::json::array();
  std::optional<StageKind> kind;
  for (const StageInfo& stage : codec_stages()) {
    list.push_back({{"name", stage.name},
                    {"kind", name_of(stage.kind)},
                    {"rule", stage.rule},
                    {"parameters", stage.parameters},
                    {"bias", stage.bias},
                    {"source", stage.source}});
    if (!prints) continue;
    if (kind != stage.kind) fmt::print("{}{}\n", kind ? "\n" : "", name_of(stage.kind));
    kind = stage.kind;
    fmt::print("  {:<12} {}{}{}\n", stage.name, stage.rule, stage.source.empty() ? "" : ". ", stage.source);
    if (!stage.parameters.empty()) fmt::print("  {:<12} {}\n", "", stage.parameters);
    fmt::print("  {:<12} {}\n", "", stage.bias);
  }
  if (prints) {
    fmt::print("\npresets\n");
    for (const Preset& preset : presets()) fmt::print("  {:<12} {}. {}\n", preset.name, preset.spec, preset.meant_for);
    fmt::print(
        "\nFor all of a spec, on any of its stages, but not with those of exchange, which settle it themselves:\n"
        "ef=0 refuses error feedback, which is on where a codec is biased, ef=1 demands it, and ef=21 codes changes "
        "(delta).\n"
        "momentum=0.9 stands before error feedback and takes the place of the optimizer's. by=reduce_scatter or "
        "all_gather\n"
        "says how codes become an average; else casts are added up in transit, and sparse codes take the cheaper way.\n"
        "dgc and lossless settle error feedback and momentum themselves, too.\n");
  }
  nlohmann::json named = nlohmann::json::array();
  for (const Preset& preset : presets())
    named.push_back({{"name", preset.name}, {"spec", preset.spec}, {"meant_for", preset.meant_for}});
  file.write({{"stages", std::move(list)}, {"presets", std::move(named)}});
  return 0;
}

}  // namespace

int run_codec(const Arguments& arguments) {
  CLI::App app("Compress a file of floats: bits, error and speed of codecs.", "ranvier codec");
  app.footer(codec_examples);
  std::string path, json_path;
  std::vector<std::string> specs;
  bool compare = false;
  app.add_option("FILE", path, "floats to compress; the word list explains every stage instead")->required();
  app.add_option("--spec", specs, "a codec to try; may be given several times")->type_name("SPEC");
  app.add_flag("--compare", compare, "try all recommended codecs");
  app.add_option("--json", json_path, "write the rows there; - is stdout, in place of the table")->type_name("FILE");
  if (const auto code = parse(app, arguments)) return *code;
  refuse_overwriting({{"--json", json_path}}, {{"FILE", path}});

  const JsonFile file(json_path);
  const bool prints = json_path != "-";
  if (path == "list") {
    if (compare || !specs.empty())
      throw Error(ErrorKind::usage,
                  "'codec list' explains every stage and measures none; leave out --spec and "
                  "--compare, or name a file (./list, if it has that name)");
    return list_stages(file, prints);
  }
  if (compare) specs.insert(specs.end(), recommended.begin(), recommended.end());
  if (specs.empty())
    throw Error(ErrorKind::usage,
                "nothing says which codec; add --spec int8 ('ranvier codec list' has all), or --compare");
  for (const std::string& spec : specs) make_codec(spec);  // wrong ones are told before anything is measured
  const std::vector<float> values = read_floats(path);

  if (prints)
    fmt::print("{} float{} of {}\n{:<34} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>12}\n", values.size(),
               values.size() == 1 ? "" : "s", path, "codec", "bits", "ratio", "error", "cosine", "largest", "encode",
               "decode GB/s");
  nlohmann::json rows = nlohmann::json::array(), without_code = nlohmann::json::array();
  for (const std::string& spec : specs) {
    const auto row = specs.size() > 1 ? measure_if_codable(spec, values) : std::optional(measure_codec(spec, values));
    if (!row) {
      constexpr std::string_view why = "a value, or a coefficient, is NaN, infinite or beyond 2^50";
      without_code.push_back({{"spec", spec}, {"why", why}});
      if (prints) fmt::print("{:<34} no code: {}\n", spec, why);
      continue;
    }
    rows.push_back(to_json(*row));
    if (!prints) continue;
    print(*row);
    if (!compare) print_stages(*row);
  }
  file.write({{"rows", rows},
              {"without_code", std::move(without_code)},
              {"values", values.size()},
              {"environment", environment()}});
  if (rows.empty())
    throw Error(ErrorKind::config, fmt::format("none of {} has a code for the values of {}; 'lossless' codes any",
                                               fmt::join(specs, ", "), path));
  return 0;
}

}  // namespace ranvier::cli
