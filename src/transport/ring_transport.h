// The transport over inboxes, wherever their memory comes from: loopback's is this process's own, shm's is shared.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ranvier/transport.h"
#include "transport/inbox.h"

namespace ranvier::transport {

// What one rank sees of a world of inboxes, all of them open.
struct RingWorld {
  std::string_view name;  // in traits()
  Rank rank = 0;
  InboxLayout layout;
  std::vector<InboxHeader*> headers = {};        // by rank
  std::vector<std::byte*> inbound = {};          // sections of this rank's inbox, by sender
  std::vector<std::byte*> outbound = {};         // this rank's section of each inbox, by receiver
  std::shared_ptr<const void> memory = nullptr;  // owns all of that
};

std::unique_ptr<Transport> ring_transport(RingWorld);

}  // namespace ranvier::transport
