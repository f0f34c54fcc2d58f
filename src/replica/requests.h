// How a rank serves all others: requests come as messages of one tag until each of them has left.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "sync/serving.h"

namespace ranvier::replica {

// For a request, and for a part of the samples: nobody asks while its step computes, however long that takes, and who
// is too far ahead gets none until others have ended theirs. Heartbeats find out who has died meanwhile.
inline constexpr std::chrono::hours longest_wait{24 * 7};

// Without driving the communicator meanwhile, which its background thread does, or who waits for something of his own:
// nobody knows when others ask, and threads that look for it themselves take the processors from those that compute.
// (Six workers on two cores spent as long looking as training.)
inline void wait_asleep(const Communicator& comm, Work& work) {
  if (comm.options().background_progress) {
    const auto done = std::make_shared<std::binary_semaphore>(0);
    work.on_done([done] { done->release(); });
    done->acquire();
  }
  work.wait();
}

// One thread's part of `serving`, of which all other ranks are the clients. Calls `answer` for each request of at most
// `most_bytes` that it hears; false says that it was its sender's last one. Returns when it is needed no more; throws
// what `answer` and the communicator throw.
inline void serve_requests(Communicator& comm, sync::Serving& serving, std::uint64_t tag, std::size_t most_bytes,
                           const std::function<bool(Rank from, ConstBytes request)>& answer) {
  std::vector<std::byte> message(most_bytes);
  for (;;) {
    Work arriving =
        comm.start_recv_at_most({message.data(), message.size(), DType::u8}, Communicator::any_rank, tag, longest_wait);
    wait_asleep(comm, arriving);
    const bool goes_on = answer(arriving.source(), ConstBytes(message).first(arriving.received_bytes()));
    if (!goes_on && serving.has_left()) return;
  }
}

// What cannot be served ends the job: its sender waits for an answer, as do others for theirs.
[[noreturn]] inline void refuse(Communicator& comm, Rank from, const std::string& why) {
  const std::string sentence = fmt::format("{} asked it for what it cannot serve: {}", comm.rank_name(from), why);
  comm.abort(sentence);
  throw Error(ErrorKind::mismatch, sentence, from);
}

}  // namespace ranvier::replica
