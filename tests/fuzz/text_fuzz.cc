// libFuzzer target: every kind of text that a user or another rank may give: specs, sizes, tuning tables, networks and
// addresses. The first byte chooses the reader. Anything but a value or an Error that blames the text is a finding.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/spec.h"
#include "ranvier/codec.h"
#include "ranvier/design.h"
#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/schedule.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"
#include "ranvier/tuning.h"
#include "transport/mpi/mpi_address.h"
#include "transport/shm_address.h"
#include "transport/tcp_address.h"
#include "transport/ucx/ucx_address.h"
#include "transport/udp_address.h"

namespace {

using namespace ranvier;

void require(bool held) {
  if (!held) std::abort();
}

// An address that is one says the same again.
template <class Address>
void try_address(std::string_view text) {
  const auto address = Address::parse(text);
  if (!address) return;
  const auto again = Address::parse(address->text());
  require(again && again->text() == address->text());
}

void read(std::uint8_t which, std::string_view text) {
  switch (which % 10) {
    case 0: {
      const TuningTable table = TuningTable::parse(text, "input");
      require(TuningTable::parse(table.text(), "output").text() == table.text());
      return;
    }
    case 1:
      parse_spec(text);
      return;
    case 2:
      parse_algorithm(text);
      return;
    case 3: {
      const NetworkShape shape = parse_network(text);
      require(to_string(parse_network(to_string(shape))) == to_string(shape));
      return;
    }
    case 4:
      parse_constraints(text, 4);
      return;
    case 5:
      make_codec(text);
      return;
    case 6:
      try_address<transport::TcpAddress>(text);
      try_address<transport::UdpAddress>(text);
      try_address<transport::MpiAddress>(text);
      try_address<transport::UcxAddress>(text);
      return;
    case 7:
      try_address<transport::ShmAddress>(text);
      return;
    case 8:
      parse_transport(text);
      return;
    default:
      parse_bytes(text);
      parse_rate(text);
      parse_ports(text);
      return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  try {
    read(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::usage || error.kind() == ErrorKind::config);
  }
  return 0;
}
