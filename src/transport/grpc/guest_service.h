// The service of proto/ranvier_parameter_server.proto.
#pragma once

#include <memory>

#include "ranvier/parameter_guests.h"

namespace ranvier::transport {

std::unique_ptr<GuestService> grpc_guest_service(GuestCalls calls, const GuestOptions& options);

}  // namespace ranvier::transport
