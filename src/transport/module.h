// Parts of ranvier that stand in libraries of their own: transports over MPI and UCX, and the service for guests by
// gRPC.
//
// They bring dozens of shared libraries with them, threads, signal handlers and hooks into malloc. A job on tcp should
// load none of that, a machine without them should run it, and gRPC's protobuf must not meet torch's in one table of
// symbols. So each is a library of its own, libranvier_NAME.so, opened when somebody asks for it
// (docs/decisions/0011-heavy-transports-are-modules.md). What a build lacks is a file that is not there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "ranvier/guest_service.h"
#include "ranvier/transport.h"

namespace ranvier::transport {

// What a module needs to know beyond the world; each uses its own part.
struct ModuleOptions {
  std::string interface_address = {};  // to listen on, see TcpOptions
  PortRange ports = {};                // likewise
};

inline constexpr int module_abi = 7;  // raise with any change here or in guest_service.h

// The one symbol that a module defines: `extern "C" const TransportModule ranvier_transport_module`.
struct TransportModule {
  const char* version;   // of the ranvier that it was built with, …
  int abi = module_abi;  // … which several builds between two releases share
  std::size_t options_bytes = sizeof(ModuleOptions);
  // Of one that is a transport, …
  std::unique_ptr<Endpoint> (*endpoint)(const WorldInfo&, const ModuleOptions&) = nullptr;
  // … and of grpc.
  std::unique_ptr<GuestService> (*guest_service)(GuestCalls, const GuestOptions&) = nullptr;
};
inline constexpr const char* module_symbol = "ranvier_transport_module";

// Whether this build may call it.
bool built_together(const TransportModule&);

// Opens the module once in this process. Throws Error{config} that says what to install where it cannot.
const TransportModule& load_module(std::string_view name);

}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module;
