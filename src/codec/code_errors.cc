#include "codec/code_errors.h"

#include <fmt/format.h>

#include "ranvier/error.h"

namespace ranvier {

void require_room(std::string_view coder, std::size_t count, std::string_view things, std::size_t needed,
                  std::size_t room) {
  if (room < needed)
    throw Error(ErrorKind::usage, fmt::format("{} bytes are too few for the {} code of {} {}; give encode {}", room,
                                              coder, count, things, needed));
}

void require_code_room(std::string_view spec, std::size_t values, std::size_t needed, std::size_t room) {
  if (room < needed)
    throw Error(ErrorKind::usage, fmt::format("{} bytes are too few for the code of {} values by '{}'; give encode {}",
                                              room, values, spec, needed));
}

void not_a_code(std::string_view coder, std::size_t bytes, std::size_t count, std::string_view things) {
  throw Error(ErrorKind::mismatch,
              fmt::format("the {} bytes that came are not the {} code of {} {}; give the same codec "
                          "and bucket sizes to every rank",
                          bytes, coder, count, things));
}

}  // namespace ranvier
