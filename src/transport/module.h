// Transports that stand in libraries of their own.
//
// MPI, UCX and gRPC bring dozens of shared libraries with them, threads, signal handlers and hooks into malloc. A job
// on tcp should load none of that, a machine without them should run it, and gRPC's protobuf must not meet torch's in
// one table of symbols. So each is a library of its own, libranvier_NAME.so, opened when somebody asks for its
// transport (docs/decisions/0011-heavy-transports-are-modules.md). A transport that a build lacks is a file that is not
// there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "ranvier/guest_service.h"
#include "ranvier/transport.h"
#include "transport/tcp_door.h"

namespace ranvier::transport {

// What a module needs to know beyond the world; each uses its own part.
struct ModuleOptions {
  std::string interface_address = {};  // to listen on, see TcpOptions
  PortRange ports = {};                // likewise
  SecurityOptions security = {};
  std::shared_ptr<TcpDoor> door = {};  // where the job meets
};

inline constexpr int module_abi = 4;  // raise with any change here, in TcpDoor or in guest_service.h

// The one symbol that a module defines: `extern "C" const TransportModule ranvier_transport_module`.
struct TransportModule {
  const char* version;   // of the ranvier that it was built with, …
  int abi = module_abi;  // … which several builds between two releases share
  std::size_t options_bytes = sizeof(ModuleOptions);
  std::unique_ptr<Endpoint> (*endpoint)(const WorldInfo&, const ModuleOptions&);
  // Of grpc only.
  std::unique_ptr<GuestService> (*guest_service)(GuestCalls, const GuestOptions&) = nullptr;
};
inline constexpr const char* module_symbol = "ranvier_transport_module";

// Whether this build may call it.
bool built_together(const TransportModule&);

// Opens the module once in this process. Throws Error{config} that says what to install where it cannot.
const TransportModule& load_module(std::string_view name);

// The transport's endpoint at a door that the control plane uses too; null: at one of its own.
std::unique_ptr<Endpoint> grpc_endpoint_at(std::shared_ptr<TcpDoor> door, const WorldInfo&, const GrpcOptions&);

}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module;
