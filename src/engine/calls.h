// From a request to what the executor runs: checked, its algorithm chosen, its program compiled. A request that comes
// again, as they all do in training, costs one look-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "base/spin_lock.h"
#include "engine/collective.h"
#include "engine/programs.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// All of a request that its call depends on, but for uneven splits.
class RequestKey {
 public:
  RequestKey() = default;  // of no request
  explicit RequestKey(const Request&);

  // Whether the call made for this key serves `request`.
  bool serves(const Request& request) const { return even(request) && *this == RequestKey(request); }
  static bool even(const Request& request) { return request.input_splits.empty() && request.output_splits.empty(); }
  // In the high bits.
  std::size_t hash() const;

  friend bool operator==(const RequestKey&, const RequestKey&) = default;

 private:
  static constexpr std::uint8_t unnamed = 255, automatic = 254;
  static constexpr std::ptrdiff_t apart = std::numeric_limits<std::ptrdiff_t>::max();

  std::size_t input_count_ = 0;
  std::size_t output_count_ = 0;
  std::ptrdiff_t distance_ = 0;  // from output to input where they overlap
  Rank root_ = -1;
  std::uint8_t algorithm_ = unnamed;  // index in algorithms()
  Collective collective_ = Collective::barrier;
  ReduceOp op_ = ReduceOp::sum;
  DType input_type_ = DType::u8;
  DType output_type_ = DType::u8;
};

struct CallSettings {
  Rank rank = 0;
  Rank world = 1;
  Epoch epoch = 0;
  std::string algorithm;  // for requests that name none; "auto" chooses by size
  bool shared_memory = false;
  std::size_t slice_bytes = 0;     // a power of two, the same on all ranks; …
  std::size_t buffered_bytes = 0;  // … so is the least that a link takes before its receiver reads
};

class Calls {
 public:
  // Throws Error{usage} for an unknown algorithm.
  explicit Calls(CallSettings settings);

  // The call of `request`, all but its memory, number and lane. Thread-safe. Throws Error{usage}.
  CollectiveCall prepare(const Request& request);

 private:
  struct Entry {
    RequestKey key;
    CollectiveCall call;
  };
  CollectiveCall make(const Request&);

  const CallSettings settings_;
  const Algorithm* own_ = nullptr;  // the algorithm that the settings name
  ProgramCache programs_;
  SpinLock lock_;
  std::array<Entry, 64> recent_;  // direct-mapped
};

}  // namespace ranvier::engine
