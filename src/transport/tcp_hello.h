// The handshake on a new connection, three messages of one shape: the dialler says hello, the other side answers
// welcome, the dialler confirms. Only after the confirmation does either side count on the connection, so that one that
// was given up halfway and dialled again is never taken twice.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ranvier/transport.h"
#include "transport/tcp_address.h"

namespace ranvier::transport {

enum class TcpPurpose : std::uint8_t { data, control };
enum class HelloStep : std::uint8_t { hello = 1, welcome, confirm };

// In host byte order: the magic is wrong on a machine of the other order, whose data would be unreadable anyway.
struct Hello {
  std::uint32_t magic = 0x52'4e'56'52;
  std::uint16_t version = 1;
  Epoch epoch = 0;
  Token token{};
  Rank from = 0;
  Rank to = 0;
  TcpPurpose purpose = TcpPurpose::data;
  std::uint8_t channel = 0;
  HelloStep step = HelloStep::hello;
  std::uint8_t reserved = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
  // What the other side must send next if it is who this message was meant for.
  Hello answered_with(HelloStep next) const {
    Hello answer = *this;
    answer.from = to;
    answer.to = from;
    answer.step = next;
    return answer;
  }
};
static_assert(sizeof(Hello) == 36 && std::is_trivially_copyable_v<Hello>);

}  // namespace ranvier::transport
