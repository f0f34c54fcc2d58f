// libFuzzer target: by what ranks find out that they do not do the same. The first byte says whether the rest is a card
// that a rank has left in the store, or the headers of two ranks' calls. A card is refused by Error{mismatch} or comes
// back as it was; of headers that do not agree there is a sentence.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "engine/card.h"
#include "engine/message_header.h"
#include "ranvier/error.h"

namespace {

using namespace ranvier;
using namespace ranvier::engine;

void require(bool held) {
  if (!held) std::abort();
}

void read_card(std::string_view text) {
  try {
    const std::string again = Card::parse(text, 3, {}).text();
    require(Card::parse(again, 3, {}).text() == again);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::mismatch && error.culprit() == 3);
  }
}

void compare(std::string_view bytes) {
  MessageHeader ours;
  MessageHeader theirs;
  const auto fill = [&](MessageHeader& header) {
    const std::size_t size = std::min(bytes.size(), sizeof header);
    std::memcpy(&header, bytes.data(), size);
    bytes.remove_prefix(size);
  };
  fill(ours);
  theirs = ours;  // but for what the second has
  fill(theirs);
  require(agree(ours, theirs) == agree(theirs, ours) && agree(ours, ours));
  const Error error = disagreement(0, ours, 1, theirs, {}, "nothing");
  const std::string_view said = error.what();
  require(said.find("rank 0 runs") != said.npos && said.size() < 4096);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  data[0] % 2 == 0 ? read_card(rest) : compare(rest);
  return 0;
}
