// Which collectives of a communicator the library beneath its transport runs ("--algorithm vendor"), and how they are
// started.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/rank_names.h"
#include "engine/operation.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// The algorithm that is none of ranvier's.
inline constexpr std::string_view by_vendor = "vendor";

class VendorCalls {
 public:
  // `library` is null where the transport has no collectives of its own; it outlives this.
  VendorCalls(VendorCollectives* library, std::string_view transport, Rank rank, Rank world, RankNames names)
      : library_(library), transport_(transport), rank_(rank), world_(world), names_(std::move(names)) {}

  // From now on the library runs all that it can and that names no other algorithm. Throws Error{usage} where it can
  // run nothing.
  void prefer();

  // Whether the library runs `request`. Throws Error{usage} for a request that orders it and cannot be obeyed.
  bool serves(const Request& request) const {
    const bool ordered = request.algorithm == by_vendor;
    if (!ordered && !(preferred_ && request.algorithm.empty())) [[likely]]
      return false;
    return world_ > 1 && can_run(request, ordered);
  }
  std::shared_ptr<Operation> start(Engine&, const Request&, std::chrono::nanoseconds timeout) const;

 private:
  bool can_run(const Request&, bool ordered) const;
  // Why the library cannot do it; empty if it can. The same on all ranks.
  std::string refusal(const Request&) const;

  VendorCollectives* const library_;
  const std::string transport_;
  const Rank rank_;
  const Rank world_;
  const RankNames names_;
  bool preferred_ = false;
};

}  // namespace ranvier::engine
