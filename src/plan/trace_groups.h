// What a trace's operations share: ranks with each other, and each device or group with the operation before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "ranvier/execution_trace.h"

namespace ranvier::plan {

// The ranks of an operation's process group; none: all of them. Throws Error{usage} where nothing says which they are.
std::span<const Rank> ranks_of(const ExecutionTrace&, const Operation&);
// Throw Error{usage} where it is not one of so many, or says nothing of some dimensions; `network`: whose.
void check_rank(Rank, std::int64_t world, std::string_view network, const Operation&);
void check_dimensions(const Operation&, std::size_t dimensions, std::string_view network);

// Devices compute one thing at a time, in the order in which they were told to; so do the members of a group with its
// collectives, which all of them start in one order. A message each way goes beside them. (docs/decisions/0030)
template <class Group>
class TraceChains {
 public:
  // The one of the same kind before it, of those that take time.
  std::optional<std::size_t> before(const Operation& operation, const Group& group, std::size_t number) {
    const auto [last, is_first] = last_.try_emplace({kind_of(operation), group}, number);
    if (is_first) return std::nullopt;
    return std::exchange(last->second, number);
  }

 private:
  enum class Kind : std::uint8_t { computing, collective, sending, receiving };
  static Kind kind_of(const Operation& operation) {
    if (!operation.communication) return Kind::computing;
    switch (operation.communication->collective) {
      case Collective::send:
        return Kind::sending;
      case Collective::recv:
        return Kind::receiving;
      default:
        return Kind::collective;
    }
  }

  std::map<std::pair<Kind, Group>, std::size_t> last_;
};

}  // namespace ranvier::plan
