// A collective that the library beneath the transport runs ("--algorithm vendor"): the engine keeps its order, its
// deadline and its place in the flight recorder, and moves none of its bytes.
#pragma once

#include <exception>
#include <string>

#include "engine/operation.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

class VendorOperation final : public Operation {
 public:
  // `average`: the library sums, and the result is divided here. The request has been checked.
  VendorOperation(VendorCollectives& library, const VendorCall& call, Rank rank, Rank world);

  // Libraries match collectives by the order in which they are started, as begin() is called in on all ranks.
  void begin() override;
  Progress advance(Transport&, bool briefly) override;
  std::string describe() const override;
  Rank waits_for() const override { return -1; }
  FlightRecorder::Entry entry() const override;

 private:
  void divide() const;

  VendorCollectives& library_;
  VendorCall call_;
  const Rank rank_;
  const Rank divisor_;  // 0: none
  VendorCollectives::Transfer transfer_ = 0;
  std::exception_ptr problem_;  // of begin()
};

// What the library is given for `request`, which has equal parts. Throws Error{usage} where the request is impossible.
VendorCall vendor_call(const Request& request, Rank rank, Rank world);
// Why the library cannot do it; empty if it can. The same on all ranks.
std::string vendor_refusal(const VendorCollectives* library, const Request& request, Rank rank, Rank world);

}  // namespace ranvier::engine
