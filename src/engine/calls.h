// From a request to what the executor runs: checked, its algorithm chosen, its program compiled. A request that comes
// again, as they all do in training, costs one look-up.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>

#include "base/spin_lock.h"
#include "engine/collective.h"
#include "engine/programs.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

struct CallSettings {
  Rank rank = 0;
  Rank world = 1;
  Epoch epoch = 0;
  std::string algorithm;  // for requests that name none; "auto" chooses by size
  bool shared_memory = false;
  std::size_t slice_bytes = 0;  // a power of two, the same on all ranks
};

class Calls {
 public:
  explicit Calls(CallSettings settings);

  // The call of `request`, all but its number and lane. Thread-safe. Throws Error{usage}.
  CollectiveCall prepare(const Request& request);

 private:
  // All of a request that its call depends on.
  struct Key {
    std::size_t input_count = 0;
    std::size_t output_count = 0;
    std::ptrdiff_t distance = 0;  // from output to input where they overlap
    Rank root = 0;
    Collective collective = Collective::barrier;
    ReduceOp op = ReduceOp::sum;
    DType input_type = DType::u8;
    DType output_type = DType::u8;
    bool known = false;

    static constexpr std::ptrdiff_t apart = std::numeric_limits<std::ptrdiff_t>::max();
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::string algorithm;
    CollectiveCall call;
  };
  static Key key_of(const Request&);
  static std::size_t place_of(const Key&);
  CollectiveCall make(const Request&);

  const CallSettings settings_;
  ProgramCache programs_;
  SpinLock lock_;
  std::array<Entry, 64> recent_;  // direct-mapped
};

}  // namespace ranvier::engine
