// The door of a job's parameter servers for programs in any language, see guest_service.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ranvier/guest_service.h"

namespace ranvier {

class ParameterServer;

// The guests of a ParameterServer, which outlives this. Of one rank. Their calls wait until open().
class ParameterGuests {
 public:
  ParameterGuests(ParameterServer& server, std::size_t parameters, const GuestOptions& options);
  // Calls under way end with an error.
  ~ParameterGuests();
  ParameterGuests(const ParameterGuests&) = delete;
  ParameterGuests& operator=(const ParameterGuests&) = delete;

  std::uint16_t port() const;
  void open();
  // From when this returns nothing changes by them.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranvier
