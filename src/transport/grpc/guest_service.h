// The service of proto/ranvier_parameter_server.proto.
#pragma once

#include <memory>

#include "ranvier/guest_service.h"

namespace ranvier::transport {

std::unique_ptr<GuestService> grpc_guest_service(GuestCalls calls, const GuestOptions& options);

}  // namespace ranvier::transport
