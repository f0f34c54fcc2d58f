// What MPI and UCX have in common: messages between two processes, told apart by a tag, in order within a tag. Neither
// can take back what it was given, and neither moves anything but inside of calls. Lanes are made of this by
// tagged_transport.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/socket.h"
#include "ranvier/transport.h"

namespace ranvier::transport {

class TaggedMessages {
 public:
  virtual ~TaggedMessages() = default;
  TaggedMessages(const TaggedMessages&) = delete;
  TaggedMessages& operator=(const TaggedMessages&) = delete;

  // A transfer under way; `none`: it was over before the call returned.
  using Transfer = std::uintptr_t;
  static constexpr Transfer none = 0;

  // Whether the calling thread may call the rest; where it may not, nothing moves.
  virtual bool may_be_called() const { return true; }

  // The memory stays as it is until the transfer is over. `until_taken`: it is not before its receiver has begun to
  // receive it; else a small one may be long before.
  virtual Transfer send(Rank to, Lane, ConstBytes message, bool until_taken) = 0;
  // The size of the next message on a lane once it has begun to arrive; it stays the next until it is received.
  virtual std::optional<std::size_t> arrived(Rank from, Lane) = 0;
  // Receives it; `into` has its size.
  virtual Transfer receive(Rank from, Lane, Bytes into) = 0;
  // Whether a transfer is over; it is then forgotten. Throws what it failed with.
  virtual bool over(Transfer) = 0;
  // Tries to end a transfer before its time, without error; false: the library will go on with its memory.
  virtual bool abandon(Transfer) = 0;

  // Whether nothing has happened that the caller has not heard of; asked for before each sleep().
  virtual bool may_sleep() { return true; }
  // Sleeps until a message may have arrived, `interrupt` is signalled, or `limit` passes. `idle`: how many calls in a
  // row were in vain, for libraries that cannot wake anybody. The only call during which another thread may make
  // others.
  virtual void sleep(std::chrono::nanoseconds limit, const Fd& interrupt, int idle) = 0;

  // The library's own collectives; null where it has none.
  virtual VendorCollectives* vendor() { return nullptr; }

 protected:
  TaggedMessages() = default;
};

}  // namespace ranvier::transport
