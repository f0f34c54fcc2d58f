// What each reaches is in the tables of docs/benchmarks.md: those for SGD chosen on a part of the training images that
// was held out, then tried once on the test images; the one for Adam on text.
#include <algorithm>
#include <array>

#include "ranvier/codec.h"

namespace ranvier {
namespace {

constexpr std::array all_presets{
    Preset{"safe", "qsgd:5,block=256+rans", "most training: no memory, no error feedback, the optimizer as it is"},
    Preset{"strong", "dgc:0.02,by=reduce_scatter+int4", "slow networks; takes the place of the optimizer's momentum"},
    Preset{"extreme", "dgc:0.005,clip=1,by=reduce_scatter+int4",
           "very slow networks; takes the place of the optimizer's momentum"},
    Preset{"transformer", "normalize+qsgd:2,block=256,rounding=nearest+rans",
           "transformers by Adam; remembers what gradients usually are"},
};

}  // namespace

std::span<const Preset> presets() { return all_presets; }

std::string_view spec_of(std::string_view preset_or_spec) {
  const auto* const preset = std::ranges::find(all_presets, preset_or_spec, &Preset::name);
  return preset == all_presets.end() ? preset_or_spec : preset->spec;
}

}  // namespace ranvier
