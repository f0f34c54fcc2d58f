// The call that ranvier speaks by itself, to gRPC's own server: whoever stands between two ranks and lets nothing else
// pass sees the same.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "base/socket.h"
#include "support/certificates.h"
#include "transport/channel.h"
#include "transport/grpc/grpc_server.h"
#include "transport/tcp_address.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Sends back what it is sent, until it is sent no more.
class Echo final : public grpc::ServerGenericBidiReactor {
 public:
  Echo() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    message_.Clear();
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

class Server final : private grpc::CallbackGenericService {
 public:
  explicit Server(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~Server() override { server_->Shutdown(std::chrono::system_clock::now()); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return static_cast<std::uint16_t>(port_); }
  std::string called() const { return called_; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    called_ = context->method();
    return new Echo;
  }

  int port_ = 0;
  std::string called_;
  std::unique_ptr<grpc::Server> server_;
};

bool wait_for(const Channel& channel, short events) {
  pollfd ready{channel.socket().get(), events, 0};
  return poll(&ready, 1, 10'000) == 1;
}

TEST(GrpcPeer, ItsServerUnderstandsTheCallOfARank) {
  support::Certificates made;
  made.add("one", "ours");
  for (const bool encrypted : {false, true}) {
    const SecurityOptions security = encrypted ? made.options("one") : SecurityOptions{};
    Server server(server_credentials(security));
    Channel channel(start_connect(*parse_address("127.0.0.1", server.port()), {}));
    ASSERT_TRUE(wait_for(channel, POLLOUT));
    if (encrypted) {
      channel.begin_tls(std::make_shared<TlsContext>(security, Token{}, "h2"), TlsRole::dialler);
      while (channel.secure() == TlsProgress::pending) ASSERT_TRUE(wait_for(channel, POLLIN));
      ASSERT_EQ(channel.secure(), TlsProgress::done) << channel.tls()->problem();
    }
    channel.begin_call(CallRole::caller);

    // As little as a hello, and then many times its windows, which are of 64 KiB.
    for (const std::size_t bytes : {std::size_t{36}, std::size_t{1} << 20}) {
      std::string sent(bytes, '\0'), got;
      for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<char>(i * i >> 3);
      std::size_t begun = 0;
      for (const auto until = Clock::now() + 30s; got.size() < bytes && Clock::now() < until;) {
        const ssize_t taken = channel.send({}, std::as_bytes(std::span(sent)).subspan(begun));
        begun += taken > 0 ? static_cast<std::size_t>(taken) : 0;
        std::string part(1 << 16, '\0');
        const ssize_t came = channel.recv(std::as_writable_bytes(std::span(part)));
        ASSERT_TRUE(came > 0 || (came < 0 && errno == EAGAIN)) << "after " << got.size() << " of " << bytes;
        if (came > 0) got += part.substr(0, static_cast<std::size_t>(came));
        if (taken <= 0 && came <= 0) wait_for(channel, POLLIN);
      }
      EXPECT_TRUE(got == sent) << got.size() << " of " << bytes;
    }
    EXPECT_EQ(server.called(), Http2Call::path);

    channel.end_sending();
    std::array<std::byte, 16> nothing;
    ssize_t end = -1;
    while ((end = channel.recv(nothing)) < 0 && errno == EAGAIN) ASSERT_TRUE(wait_for(channel, POLLIN));
    EXPECT_EQ(end, 0);
  }
}

}  // namespace
}  // namespace ranvier::transport
