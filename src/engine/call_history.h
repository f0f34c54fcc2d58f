// Which collectives a communicator has been asked for, as one number that ranks compare: where data flows one way only
// (two ranks that each name themselves root of a broadcast), no receiver sees that they disagree, but whatever the
// ranks do next shows it. The step is a bijection of the number, so that ranks which once differ go on to differ.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/rank_names.h"
#include "engine/message_header.h"
#include "ranvier/error.h"
#include "ranvier/types.h"

namespace ranvier::engine {

// What counts of a call: all that its header says and that is the same on all ranks, but for the length of a list,
// which ranks see that receive. Unlike a header's, a label counts here too where it is 0: ranks of one communicator
// give labels to the same calls, as those of PyTorch do, or the next call after one that only some have labelled shows
// that as a difference.
struct CallStamp {
  std::uint64_t kind = 0;  // collective (from 1), dtype, op, urgency, the label's element and shape, root
  std::uint64_t size = 0;  // elements of the vector, or of each part; 0 where they may differ
  std::uint32_t fingerprint = 0;

  // `header.size`: elements, also of a collective whose headers on the way carry each link's bytes. `dims`:
  // hash_of_dims, which a header with a root has no room for. The algorithm counts where there is a root: trees that
  // differ leave ranks waiting for who has nothing for them, and others done.
  static CallStamp of(const MessageHeader& header, std::uint32_t dims = 0);
};

// What a rank tells of its calls: how many there were, their digest, and the last one.
struct CallClaim {
  std::uint32_t count = 0;
  std::uint32_t digest = 0;
  std::uint64_t kind = 0;  // 0: not known
  std::uint64_t size = 0;

  CallLabel label() const;
  // "broadcast #3 of f32 with 64 elements, root 1".
  std::string last_call(const RankNames& rank = {}) const;
};
static_assert(sizeof(CallClaim) == 24 && std::has_unique_object_representations_v<CallClaim>);

// Any thread adds and any thread reads; there is no lock, and nothing is allocated.
class CallHistory {
 public:
  struct Point {
    std::uint32_t count = 0;
    std::uint32_t digest = 0;
  };
  enum class Verdict { alike, different, unknown };

  explicit CallHistory(Rank world, Names names = {})
      : names_(std::move(names)), alike_(static_cast<std::size_t>(world)) {}

  // One more call; what was before it.
  Point add(const CallStamp& stamp) {
    std::uint64_t before = past_.load(std::memory_order_relaxed);
    std::uint64_t after = 0;
    do {
      const std::uint32_t digest = (static_cast<std::uint32_t>(before) ^ stamp.fingerprint) * multiplier;
      after = ((before >> 32) + 1) << 32 | digest;
    } while (!past_.compare_exchange_weak(before, after, std::memory_order_relaxed));
    Place& place = places_[(after >> 32) % capacity];
    place.point.store(being_written, std::memory_order_relaxed);
    place.kind.store(stamp.kind, std::memory_order_release);  // who sees it sees that, see claim_at()
    place.size.store(stamp.size, std::memory_order_release);
    place.point.store(after, std::memory_order_release);
    return point(before);
  }

  // The next call is number `count`, and nothing counts as called before it. While nobody calls.
  void restart(std::uint32_t count);

  Point now() const { return point(past_.load(std::memory_order_relaxed)); }
  CallClaim claim() const;
  // Whether the collective of that number is among them.
  bool has_called(std::uint32_t sequence) const { return static_cast<std::int32_t>(now().count - sequence) > 0; }
  // Whether this rank had called the same when it had called as many. Unknown where it has not called as many yet, and
  // where that is long ago.
  Verdict compare(std::uint32_t count, std::uint32_t digest) const;

  // `peer` had called the same as this rank in the first `count` calls. Driver only, as the next.
  void found_alike(Rank peer, std::uint32_t count) { alike_[static_cast<std::size_t>(peer)] = count; }
  std::uint32_t alike(Rank peer) const { return alike_[static_cast<std::size_t>(peer)]; }

  // What `self`, whose history this is, gets told when `peer` claims others than its own calls; `alike`: how many are
  // known to be the same.
  Error divergence(Rank self, Rank peer, const CallClaim& theirs, std::uint32_t alike,
                   const std::string& others = "") const;
  // "they agree up to #4, and the last calls of rank 0 are broadcast #5 of …": for errors about its next call.
  // `others`: last_calls() of that rank, if it has told them.
  std::string since(Rank self, std::uint32_t alike, const std::string& others = "") const;
  // "the last calls of rank 0 are broadcast #5 of …".
  std::string last_calls(Rank self, std::uint32_t alike) const;

  static constexpr std::size_t capacity = 256;

 private:
  struct Place {
    std::atomic<std::uint64_t> point = 0;  // count and digest after the call
    std::atomic<std::uint64_t> kind = 0;
    std::atomic<std::uint64_t> size = 0;
  };
  static constexpr std::uint32_t multiplier = 0x9E3779B1;            // odd, so that the step can be undone
  static constexpr std::uint64_t being_written = ~std::uint64_t{0};  // of call 2^32 - 1, once in as many

  static Point point(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
  std::optional<CallClaim> claim_at(std::uint32_t count) const;

  std::atomic<std::uint64_t> past_ = 0;  // a Point: the count above the digest
  std::array<Place, capacity> places_{};
  const Names names_;
  std::vector<std::uint32_t> alike_;  // by peer
};

}  // namespace ranvier::engine
