// Every stage, a row each: what people are told of it and how it is made.
#pragma once

#include <span>

#include "codec/stages.h"
#include "ranvier/codec.h"

namespace ranvier {

struct Stage {
  StageInfo info;
  void (*add)(Parameters&, Draft&);  // null: not part of a codec, but an exchange of its own
};
std::span<const Stage> stages();

}  // namespace ranvier
