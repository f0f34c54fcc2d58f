#include <array>

#include "ranvier/coding.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

// Every coder of bytes by its name: one row each.
struct Maker {
  std::string_view name;
  std::unique_ptr<Coder> (*make)();
};
constexpr std::array makers{Maker{"rans", rans},
                            Maker{"huffman", huffman},
                            Maker{"range", range_coder},
                            Maker{"zstd", zstd},
                            Maker{"elias_gamma", elias_gamma},
                            Maker{"elias_delta", elias_delta},
                            Maker{"golomb_rice", golomb_rice}};

constexpr auto names = [] {
  std::array<std::string_view, makers.size()> all;
  for (std::size_t i = 0; i < makers.size(); ++i) all[i] = makers[i].name;
  return all;
}();

}  // namespace

std::span<const std::string_view> coder_names() { return names; }

std::unique_ptr<Coder> make_coder(std::string_view name) {
  for (const Maker& maker : makers)
    if (maker.name == name) return maker.make();
  throw Error(ErrorKind::usage, unknown_name("coder", name, names));
}

}  // namespace ranvier
