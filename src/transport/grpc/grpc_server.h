// How gRPC's server is set up: who is let in, keepalive and limits. Included by guest_service.cc and a test alone:
// gRPC's headers take seconds to compile.
#pragma once

#include <fmt/format.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/security.h"

namespace ranvier::transport {

inline std::string text_of_file(const std::filesystem::path& path, const char* what) {
  WholeFile file = read_whole(path);
  if (file.text.empty())
    throw Error(ErrorKind::config,
                fmt::format("cannot read the {} for grpc from {} ({}); check the path and its rights", what,
                            path.string(), file.problem.empty() ? "it is empty" : file.problem));
  return std::move(file.text);
}

// Mutual TLS by certificates; without them nothing is encrypted.
inline std::shared_ptr<grpc::ServerCredentials> server_credentials(const SecurityOptions& security) {
  if (security.certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = text_of_file(security.authority, "authority");
  options.pem_key_cert_pairs.push_back({.private_key = text_of_file(security.private_key, "private key"),
                                        .cert_chain = text_of_file(security.certificate, "certificate")});
  return grpc::SslServerCredentials(options);
}

inline void apply_limits(grpc::ServerBuilder& builder) {
  constexpr int most_message = 2 << 20;
  builder.SetMaxReceiveMessageSize(most_message);
  builder.SetMaxSendMessageSize(most_message);
  const auto set = [&builder](const char* name, int value) { builder.AddChannelArgument(name, value); };
  set(GRPC_ARG_MAX_METADATA_SIZE, 4096);
  // A call may have so many bytes on their way; probing for it costs pings and finds less.
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  set(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 2 << 20);
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, 512 << 10);
  set(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 64 << 10);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 1 << 20);
  // A guest that answers no ping for 20 s is gone.
  set(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000);
}

}  // namespace ranvier::transport
