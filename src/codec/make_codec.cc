#include <fmt/format.h>

#include <array>

#include "base/spec.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

std::unique_ptr<Codec> make_bf16(const StageSpec& stage) {
  if (!stage.value.empty() || !stage.settings.empty())
    throw Error(ErrorKind::usage, "the codec 'bf16' takes no value and no settings; write just 'bf16'");
  return bf16_codec();
}

// Every codec by its name: one row each.
struct Maker {
  std::string_view name;
  std::unique_ptr<Codec> (*make)(const StageSpec&);
};
constexpr std::array makers{Maker{"bf16", make_bf16}};

const Maker& find_maker(std::string_view name) {
  for (const Maker& maker : makers)
    if (maker.name == name) return maker;
  std::array<std::string_view, makers.size()> names;
  for (std::size_t i = 0; i < makers.size(); ++i) names[i] = makers[i].name;
  throw Error(ErrorKind::usage, unknown_name("codec", name, names));
}

}  // namespace

std::unique_ptr<Codec> make_codec(std::string_view spec) {
  const auto stages = parse_spec(spec);
  for (const StageSpec& stage : stages) find_maker(stage.name);
  if (stages.size() > 1)
    throw Error(ErrorKind::usage, fmt::format("in the spec '{}' nothing may follow '{}', whose codes are final; "
                                              "name one codec only",
                                              spec, stages.front().name));
  return find_maker(stages.front().name).make(stages.front());
}

}  // namespace ranvier
