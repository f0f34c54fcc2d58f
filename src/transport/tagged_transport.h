// The transport over tagged messages: every send is a message out of this transport's own memory, every receive one
// into it.
//
// The copy on each side is what cancel() costs: MPI cannot take back a send, so it never sees the memory of a caller,
// which may be gone after a failure. The copies are made slice by slice, in buffers that stay in the caches (and
// registered, where the network card wants that) and lie in huge pages, which between processes of one host saves more
// than the copy of the sender costs (huge_buffers.h). A sum goes back in the memory of the message that it was made of.
//
// Libraries keep small messages for a receiver that does not ask for them, however many. So after every `credit` bytes
// of a lane one message counts as under way until its receiver has begun to take it.
//
// Large messages go by rendezvous: the libraries then have to be called by their sender until the receiver has taken
// the data, while the engine is done with an operation when its memory is free again. So a helper thread calls where
// messages have not left and nobody has called for a while; a rank may compute while another one still waits for what
// it sent.
#pragma once

#include <memory>
#include <string_view>

#include "ranvier/transport.h"
#include "transport/tagged_messages.h"

namespace ranvier::transport {

struct TaggedWorld {
  std::string_view name;  // in traits(); static
  Rank rank = 0;
  Rank world = 1;
  int ranks_per_core = 1;  // see TransportTraits
  std::size_t slice_bytes = most_slice;

  static constexpr std::size_t most_slice = 128 << 10;
};

std::unique_ptr<Transport> tagged_transport(const TaggedWorld&, std::unique_ptr<TaggedMessages>);

}  // namespace ranvier::transport
