// What pipelines have in common: their spec, and what any of its stages may say of the whole.
#pragma once

#include <string>
#include <utility>

#include "ranvier/codec.h"

namespace ranvier {

struct PipelineSettings {
  std::string spec;
  bool feedback = false;     // ef=1, or nothing said and the codec is biased
  bool differences = false;  // ef=21
  bool normalized = false;
  Way way = Way::reduce_scatter;
  bool way_is_told = false;  // by=: then codes that could be added in transit go that way, too
};

class Pipeline : public Codec {
 public:
  explicit Pipeline(PipelineSettings settings) : settings_(std::move(settings)) {}
  std::string_view spec() const override { return settings_.spec; }
  std::size_t state_parts() const override { return settings_.feedback ? 1 : 0; }
  bool of_differences() const override { return settings_.differences; }
  bool of_normalized() const override { return settings_.normalized; }
  Way way() const override { return settings_.way; }

 protected:
  const PipelineSettings& settings() const { return settings_; }
  bool feeds_back(const CodecState& state) const { return settings_.feedback && !state.residual.empty(); }

 private:
  const PipelineSettings settings_;
};

}  // namespace ranvier
