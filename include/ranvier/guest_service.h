// A service of gRPC by which programs in any language push gradients and pull parameters; its definition is
// proto/ranvier_parameter_server.proto. Whose parameters these are, ParameterGuests says.
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

// Connections that a service keeps, those of guests with calls under way and those of others. A call of one more is
// refused; of more idle ones the one that has been idle for longest is closed. Where messages that have come in part
// take more memory than `unread_bytes`, calls of some of them end.
struct GuestLimits {
  std::size_t calling = 128;
  std::size_t idle = 64;
  std::size_t unread_bytes = 256 << 20;
};

struct GuestOptions {
  std::uint16_t port = 0;              // 0: one that is free
  std::string interface_address = {};  // to listen on; empty: all
  SecurityOptions security = {};       // certificates, for mutual TLS, or `insecure`
  GuestLimits limits = {};
};

// What guests may ask for. Called by a thread of the service, for one guest after the other, and may block. What they
// throw is told to the guest.
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

// Calls wait until open(). At the end those that wait are told that the job ends.
class GuestService {
 public:
  virtual ~GuestService() = default;
  virtual std::uint16_t port() const = 0;
  virtual void open() = 0;
  // From when this returns nobody is called for until open().
  virtual void close() = 0;
};

// Throws Error{usage} without certificates unless `insecure` allows it, on loopback too: others may be on this host.
void check_guest_security(const SecurityOptions&);

// Why this build or machine cannot serve guests; empty if it can. Loads the library that does.
std::string missing_guest_service();

// Listens. Throws what check_guest_security throws, and Error{config} where there is no gRPC and where the port is
// taken.
std::unique_ptr<GuestService> guest_service(GuestCalls calls, const GuestOptions& options);

}  // namespace ranvier
