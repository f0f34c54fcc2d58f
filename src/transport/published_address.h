// What every transport does with the lines of text by which ranks find each other.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cpu_set.h"
#include "base/host.h"
#include "base/socket.h"
#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier::transport {

// Of those that a host has, with many networks of containers, say; whoever means another one names it.
inline constexpr std::size_t most_ips = 64;

// Where the process that publishes `address` can be reached, at one interface or, without a name, at all of its host;
// and on which cores it runs.
template <class Address>
void set_place(Address& address, const std::string& interface_address) {
  address.cpus = CpuSet::own();
  if (!interface_address.empty()) {
    address.ips = {address_of(interface_address)};
    return;
  }
  address.host = host_identity();
  address.ips = host_addresses();
  if (address.ips.size() > most_ips) address.ips.resize(most_ips);
}

// What may be shown of a published text: its first word, which says of which transport and version it is. The rest
// holds what lets a stranger in.
inline std::string kind_of_address(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789./";
  constexpr std::size_t longest = 12;
  return std::string(text.substr(0, std::min({text.find_first_not_of(letters), text.size(), longest})));
}

// The addresses of all ranks. Throws Error{usage} if there is not one a rank, Error{mismatch} naming the rank whose
// text is none of this transport.
template <class Address>
std::vector<Address> parse_addresses(std::string_view transport, Rank world, const std::vector<std::string>& texts) {
  if (texts.size() != static_cast<std::size_t>(world))
    throw Error(ErrorKind::usage,
                fmt::format("{} addresses for a world of {} ranks; give one a rank", texts.size(), world));
  std::vector<Address> addresses;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    auto address = Address::parse(texts[rank]);
    if (!address)
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} published '{}', which is no {} address of this version; run the same ranvier on "
                              "all ranks",
                              rank, kind_of_address(texts[rank]), transport),
                  static_cast<Rank>(rank));
    addresses.push_back(*std::move(address));
  }
  return addresses;
}

}  // namespace ranvier::transport
