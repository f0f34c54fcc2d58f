// libFuzzer target: what guests of the parameter servers send, as protobuf would write it. The first byte says whether
// it is a pull or the messages of a push, the second how large the pieces are in which they lie. Anything but a value
// or an Error that blames the guest is a finding, and so is a push that is accepted without being a finite step.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "ranvier/error.h"
#include "transport/grpc/guest_messages.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::size_t parameters = 6;
constexpr Rank guests = 5;

void require(bool held) {
  if (!held) std::abort();
}

std::vector<ConstBytes> pieces_of(ConstBytes message, std::size_t size) {
  std::vector<ConstBytes> pieces;
  for (; !message.empty(); message = message.subspan(std::min(size, message.size())))
    pieces.push_back(message.first(std::min(size, message.size())));
  return pieces;
}

void push(ConstBytes bytes, std::size_t messages, std::size_t piece) {
  GuestPush push(parameters, guests);
  const std::size_t each = bytes.size() / messages;
  for (std::size_t i = 0; i < messages; ++i)
    push.take(pieces_of(i + 1 < messages ? bytes.subspan(i * each, each) : bytes.subspan(i * each), piece));
  push.demand_all();
  require(push.guest() >= 0 && push.guest() < guests && push.push().number > 0);
  require(push.gradient().size() == parameters);
  for (const float value : push.gradient()) require(std::isfinite(static_cast<float>(push.push().rate) * value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const ConstBytes bytes = std::as_bytes(std::span(data + 2, size - 2));
  const std::size_t piece = std::max<std::size_t>(data[1], 1);
  try {
    if (data[0] % 3 == 0) {
      const Rank guest = read_pull(pieces_of(bytes, piece), guests);
      require(guest >= 0 && guest < guests);
    } else {
      push(bytes, data[0] % 3, piece);
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::usage);
  }
  return 0;
}
