#include <fmt/format.h>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/inbox.h"
#include "transport/mapping.h"
#include "transport/ring_transport.h"

namespace ranvier {

using transport::InboxHeader;
using transport::InboxLayout;
using transport::Mapping;
using transport::RingWorld;

std::vector<std::unique_ptr<Transport>> loopback_world(Rank world) {
  if (world < 1)
    throw Error(ErrorKind::usage,
                fmt::format("a loopback world of {} ranks was asked for; it needs at least 1", world));
  const InboxLayout layout(world);
  auto inboxes = std::make_shared<std::vector<Mapping>>();
  std::vector<InboxHeader*> headers;
  for (Rank rank = 0; rank < world; ++rank) {
    inboxes->push_back(Mapping::of_zeroes(layout.bytes()));
    headers.push_back(&transport::open_inbox(inboxes->back().data(), {.rank = rank, .world = world}));
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < world; ++rank) {
    RingWorld view{.name = "loopback", .rank = rank, .layout = layout, .headers = headers, .memory = inboxes};
    for (Rank peer = 0; peer < world; ++peer) {
      const auto inbox_of = [&](Rank owner) { return (*inboxes)[static_cast<std::size_t>(owner)].data(); };
      view.inbound.push_back(inbox_of(rank) + layout.section_offset(peer));
      view.outbound.push_back(inbox_of(peer) + layout.section_offset(rank));
    }
    transports.push_back(transport::ring_transport(std::move(view)));
  }
  return transports;
}

}  // namespace ranvier
