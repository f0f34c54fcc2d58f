// How gRPC is set up: flow control that keeps a lane busy, keepalive, limits, and who is let in. Included by
// grpc.cc, guest_service.cc and a test alone.
#pragma once

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/host.h"
#include "base/whole_file.h"
#include "ranvier/error.h"
#include "ranvier/security.h"
#include "ranvier/transport.h"
#include "transport/grpc/grpc_stream.h"
#include "transport/tcp_address.h"

namespace ranvier::transport {

inline std::string text_of_file(const std::filesystem::path& path, const char* what) {
  WholeFile file = read_whole(path);
  if (file.text.empty())
    throw Error(ErrorKind::config,
                fmt::format("cannot read the {} for grpc from {} ({}); check the path and its rights", what,
                            path.string(), file.problem.empty() ? "it is empty" : file.problem));
  return std::move(file.text);
}

// Files of key, certificate and authority as text; all empty where nothing is encrypted.
struct GrpcKeys {
  explicit GrpcKeys(const SecurityOptions& options) {
    if (!options.key_file.empty() || (options.encrypt_everywhere && options.certificate.empty()))
      throw Error(ErrorKind::config,
                  "grpc encrypts by certificates only; name them in --certificate, --private-key and "
                  "--authority, or use tcp");
    if (options.certificate.empty()) return;
    key = text_of_file(options.private_key, "private key");
    certificate = text_of_file(options.certificate, "certificate");
    authority = text_of_file(options.authority, "authority");
  }
  bool given() const { return !key.empty(); }

  std::shared_ptr<grpc::ServerCredentials> for_server() const {
    if (!given()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = authority;
    options.pem_key_cert_pairs.push_back({key, certificate});
    return grpc::SslServerCredentials(options);
  }
  std::shared_ptr<grpc::ChannelCredentials> for_client() const {
    if (!given()) return grpc::InsecureChannelCredentials();
    return grpc::SslCredentials({.pem_root_certs = authority, .pem_private_key = key, .pem_cert_chain = certificate});
  }

  std::string key, certificate, authority;
};

// The same on both sides; each takes what concerns it.
inline grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  // Each lane may have so many bytes on their way; probing for it costs pings and finds less.
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  arguments.SetInt(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 2 << 20);
  arguments.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, 512 << 10);
  arguments.SetInt(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 64 << 10);
  arguments.SetInt(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 1 << 20);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(GrpcStream::most_message));
  arguments.SetMaxSendMessageSize(static_cast<int>(GrpcStream::most_message));
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 4096);
  // A peer that answers no ping for 20 s is gone; the control plane mostly knows it earlier.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A lane that was lost is not called again: what was under way on it is gone.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Two transports of one process to one peer share nothing.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The door answers to nobody here while the ranks' control plane still meets at it, which takes moments.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return arguments;
}

inline void apply_limits(grpc::ServerBuilder& builder) {
  const grpc_channel_args all = channel_arguments().c_channel_args();
  for (std::size_t i = 0; i < all.num_args; ++i)
    if (all.args[i].type == GRPC_ARG_INTEGER) builder.AddChannelArgument(all.args[i].key, all.args[i].value.integer);
  builder.SetMaxReceiveMessageSize(static_cast<int>(GrpcStream::most_message));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000);
}

// Of a target, which is a URI: the scope of a link-local address begins with what escapes there.
inline std::string in_target(const SocketAddress& address) {
  std::string text = address.text();
  if (const std::size_t scope = text.find('%'); scope != text.npos) text.insert(scope + 1, "25");
  return text;
}

// gRPC tries the addresses of a list one after the other; of one family only.
inline std::string target_of(const TcpAddress& address) {
  std::string four, six;
  for (const SocketAddress& each : address.candidates(host_identity())) {
    std::string& list = each.storage.ss_family == AF_INET ? four : six;
    list += (list.empty() ? "" : ",") + in_target(each);
  }
  return four.empty() ? "ipv6:" + six : "ipv4:" + four;
}

inline std::shared_ptr<grpc::Channel> channel_to(const TcpAddress& address, const GrpcKeys& keys) {
  grpc::ChannelArguments arguments = channel_arguments();
  if (keys.given()) arguments.SetSslTargetNameOverride(name_in_certificates);
  return grpc::CreateCustomChannel(target_of(address), keys.for_client(), arguments);
}

}  // namespace ranvier::transport
