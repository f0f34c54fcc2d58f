// Something that travels as messages, phase by phase: the next phase begins when all messages of this one have come.
// Whichever thread finishes the last message takes the step, or the one that waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier {

class Phased : public std::enable_shared_from_this<Phased> {
 public:
  virtual ~Phased() = default;
  // Calls `then` once, when all phases are over or one has failed.
  void start(std::function<void()> then);
  // May be called before start(), by another thread.
  void wait();
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Once done.
  std::exception_ptr error() const { return problem_; }
  bool went_plain() const { return plain_; }
  std::uint64_t bytes_sent() const { return bytes_sent_ + (rest_ ? rest_->bytes_sent() : 0); }

 protected:
  explicit Phased(Communicator& comm) : comm_(comm), rank_(comm.rank()), world_(comm.world()) {}

  // Both by one thread at a time: they send, and leave in works_ what has to come before the next call of advance();
  // false ends it all.
  virtual bool begin() = 0;
  virtual bool advance() = 0;
  // Once, after the last phase or a failure.
  virtual void end() {}

  template <class Body>
  void each_peer(const Body& body) {  // body(peer) for those after this rank first
    for (Rank distance = 1; distance < world_; ++distance) body((rank_ + distance) % world_);
  }
  // Messages of programs have small tags: those of exchanges have the highest bit set. `number` is the same on all
  // ranks, and another one for everything that is under way.
  static std::uint64_t tag(std::uint64_t number, std::uint64_t phase) {
    return std::uint64_t{1} << 63 | number << 2 | phase;
  }
  void send(ConstBytes bytes, Rank to, std::uint64_t tag) {
    sends_.push_back(comm_.start_send({bytes.data(), bytes.size(), DType::u8}, to, tag));
    bytes_sent_ += bytes.size();
  }
  Work receive(Bytes room, Rank from, std::uint64_t tag) {
    return comm_.start_recv_at_most({room.data(), room.size(), DType::u8}, from, tag);
  }
  // The last phase but one also waits until what was sent may be overwritten.
  void wait_for_sends() {
    works_.insert(works_.end(), sends_.begin(), sends_.end());
    sends_.clear();
  }

  // From begin() or advance() that return false: this is over when `rest` is.
  void go_on_with(std::shared_ptr<Phased> rest) { rest_ = std::move(rest); }

  Communicator& comm_;
  const Rank rank_, world_;
  std::vector<Work> works_;  // that this phase waits for
  bool plain_ = false;       // a value had no code, on whatever rank

 private:
  void watch();  // calls step() once all of works_ are done
  void step();   // advances as far as finished works allow
  void finish(std::exception_ptr problem);

  std::mutex mutex_;      // one thread at a time takes a step
  bool started_ = false;  // somebody may wait before that
  bool over_ = false;     // there is no other phase
  bool ended_ = false;    // and end() was called
  std::vector<Work> sends_;
  std::uint64_t bytes_sent_ = 0;
  std::shared_ptr<Phased> rest_;
  std::exception_ptr problem_;
  std::function<void()> then_;
  std::atomic<bool> done_ = false;
};

}  // namespace ranvier
