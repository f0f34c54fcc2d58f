// How a rank serves all others: requests come as messages of one tag until each of them has left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::replica {

// Calls `answer` for each request of at most `most_bytes`; false says that it was its sender's last one. Returns behind
// the last one of all; throws what `answer` and the communicator throw.
inline void serve_requests(Communicator& comm, std::uint64_t tag, std::size_t most_bytes,
                           const std::function<bool(Rank from, ConstBytes request)>& answer) {
  std::vector<std::byte> message(most_bytes);
  for (Rank working = comm.world() - 1; working > 0;) {
    Work arriving = comm.start_recv_at_most({message.data(), message.size(), DType::u8}, Communicator::any_rank, tag);
    arriving.wait();
    if (!answer(arriving.source(), ConstBytes(message).first(arriving.received_bytes()))) --working;
  }
}

}  // namespace ranvier::replica
