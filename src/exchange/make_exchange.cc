#include <fmt/format.h>

#include <array>

#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

constexpr std::string_view plain = "none";

// Null: no codec.
std::unique_ptr<Codec> codec_of(std::string_view spec) {
  if (spec == plain) return nullptr;
  try {
    return make_codec(spec);
  } catch (const Error& unknown) {
    const bool meant_plain = !nearest(spec, std::array{plain}).empty();
    throw Error(ErrorKind::usage, fmt::format("{}; '{}'{} sends values as they are", unknown.what(), plain,
                                              meant_plain ? " (did you mean that?)" : ""));
  }
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(std::string_view spec, Communicator& comm) {
  auto codec = codec_of(spec);
  return codec ? summable_exchange(comm, std::move(codec)) : dense_exchange(comm);
}

void check_exchange(std::string_view spec) { codec_of(spec); }

}  // namespace ranvier
