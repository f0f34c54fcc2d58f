// The door of a job's parameter servers for programs in any language: a service of gRPC, whose definition is
// proto/ranvier_parameter_server.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "ranvier/security.h"
#include "ranvier/types.h"

namespace ranvier {

struct GuestOptions {
  std::uint16_t port = 0;              // 0: one that is free
  std::string interface_address = {};  // to listen on; empty: all
  SecurityOptions security = {};       // certificates, for mutual TLS, or `insecure`
};

// What guests may ask for; called by threads of the service. They may be called by several of them at once, and may
// block. What they throw is told to the guest.
struct GuestCalls {
  struct Push {
    std::uint64_t number = 0;
    double rate = 0;
    double share = 0;
  };
  std::size_t parameters = 0;
  Rank guests = 0;  // their numbers are less
  std::function<void(Rank guest, std::span<float> parameters)> pull;
  std::function<void(Rank guest, const Push& push, std::span<const float> gradient)> push;
};

class GuestService {
 public:
  virtual ~GuestService() = default;
  virtual std::uint16_t port() const = 0;
};

// Listens. Throws Error{config} where there is no gRPC, where the port is taken, and without certificates unless
// `insecure` allows it, on loopback too: others may be on this host.
std::unique_ptr<GuestService> guest_service(GuestCalls calls, const GuestOptions& options);

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
