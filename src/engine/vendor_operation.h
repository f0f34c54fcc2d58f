// A collective that the library beneath the transport runs ("--algorithm vendor"): the engine keeps its order, its
// deadline and its place in the flight recorder, and moves none of its bytes.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "engine/operation.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

class VendorOperation final : public Operation {
 public:
  // As the library is asked: libraries have no average. They sum, and the result is divided here.
  static VendorCall summing(VendorCall call);

  // `sequence`: its number among the collectives of its communicator.
  VendorOperation(VendorCollectives& library, const VendorCall& call, std::uint32_t sequence, Rank rank, Rank world);

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
  const std::uint32_t sequence_;
  const Rank rank_;
  const Rank divisor_;  // 0: none
  VendorCollectives::Transfer transfer_ = 0;
  std::exception_ptr problem_;  // of begin()
};

}  // namespace ranvier::engine
