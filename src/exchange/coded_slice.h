// One slice of a bucket on its way: scatter codes of gradients, reduce, gather codes of sums; and once more with plain
// floats where a value had no code.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "exchange/pool.h"
#include "ranvier/codec.h"
#include "ranvier/communicator.h"

namespace ranvier {

// What all slices of an exchange share.
struct CodedTools {
  std::shared_ptr<const Codec> codec;  // of gradients
  std::shared_ptr<const Codec> sums;   // of sums; may be the same
  Pool<std::byte> codes = {};
  Pool<float> floats = {};
  std::atomic<std::uint64_t> plain = 0;
};

class CodedSlice : public std::enable_shared_from_this<CodedSlice> {
 public:
  // `number` is the same for this slice on all ranks and another one for each slice; what `state` views lives as long
  // as values do.
  CodedSlice(Communicator& comm, std::shared_ptr<CodedTools> tools, std::span<float> values, CodecState state,
             std::uint64_t number, std::uint64_t step);

  // Calls `then` once, when values hold the average or the exchange has failed.
  void start(std::function<void()> then);
  // May be called before start(), by another thread.
  void wait();
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Once done.
  std::exception_ptr error() const { return problem_; }
  bool went_plain() const { return plain_; }

 private:
  enum class Phase : std::uint64_t { scatter, gather, plain_scatter, plain_gather, end };
  struct Part {  // of the slice, owned by one rank
    std::size_t begin = 0;
    std::size_t size = 0;
    std::size_t code_room = 0;  // the most bytes of its code
  };
  struct Code {
    std::span<std::byte> room = {};
    std::size_t bytes = 0;  // 0: there is none, since a value was not finite
    ConstBytes view() const { return room.first(bytes); }
  };

  Part& part(Rank rank) { return parts_[static_cast<std::size_t>(rank)]; }
  std::span<float> values_of(Rank rank) { return values_.subspan(part(rank).begin, part(rank).size); }
  CodecState state_of(Rank rank);
  std::uint64_t tag(Phase phase) const;
  template <class Body>
  void each_peer(const Body& body);  // body(peer) for those after this rank first

  void lay_out();
  void post_receives();
  void scatter();
  void reduce();
  void gather();
  void plain_scatter();
  void plain_gather();
  void finish();
  void restore_residuals();
  void sum_gradients();
  void accumulate(std::span<float> velocity, std::span<const float> gradients) const;

  void send(ConstBytes bytes, Rank to, Phase phase);
  Work receive(Bytes room, Rank from, Phase phase);
  void watch();    // calls step() once all of works_ are done
  void step();     // advances as far as finished works allow
  void advance();  // to the next phase
  bool all_arrived() const;

  Communicator& comm_;
  const std::shared_ptr<CodedTools> tools_;
  const std::span<float> values_;
  const CodecState state_;
  const std::uint64_t number_, step_;
  const Rank rank_, world_;
  std::vector<Part> parts_;  // by rank

  std::mutex mutex_;  // one thread at a time takes a step
  Phase phase_ = Phase::scatter;
  bool started_ = false;  // somebody may wait before that
  bool plain_ = false;
  std::vector<std::byte> memory_;
  std::vector<float> sum_;
  std::vector<Code> sent_, received_, sums_;  // by rank: to it, from it, of its part
  std::vector<Work> works_;                   // that this phase waits for: one a rank, empty for this one
  std::vector<Work> later_;                   // receives of the next phase
  std::vector<Work> sends_;
  std::exception_ptr problem_;
  std::function<void()> then_;
  std::atomic<bool> done_ = false;
};

}  // namespace ranvier
