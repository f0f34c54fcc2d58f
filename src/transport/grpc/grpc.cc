// The grpc transport: a call of gRPC for each lane between two ranks, all calls of two ranks over one HTTP/2
// connection, and one port a process. The higher rank calls the lower one.
//
// A call says in its metadata which job it belongs to (the token that its server has published), from whom it comes and
// for which lane it is; others are refused before a byte of theirs is read. With certificates, nobody gets that far
// whose certificate the job's authority has not signed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grpcpp/alarm.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <list>
#include <map>
#include <sstream>
#include <string>

#include "base/host.h"
#include "base/secret.h"
#include "ranvier/error.h"
#include "transport/grpc/grpc_channel.h"
#include "transport/grpc/grpc_stream.h"
#include "transport/grpc/grpc_transport.h"
#include "transport/grpc/guest_service.h"
#include "transport/module.h"
#include "transport/plain.h"
#include "transport/published_address.h"
#include "transport/tcp_address.h"

namespace ranvier::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* method = "/ranvier.Lanes/Connect";
constexpr const char* hello_key = "ranvier-hello";

std::string hello(const Token& token, const WorldInfo& from, Rank to, Lane lane) {
  return fmt::format("{} {} {} {} {}", hex(token), from.epoch, from.rank, to, lane);
}

// Takes calls as they come: one is always asked for, and asked again when it has come. Others' are refused after a
// while: a connection has few calls at a time, so whoever calls without end waits, and the ranks' calls come through.
class Listener {
 public:
  using Take = std::function<GrpcStream*(const std::string& hello)>;

  Listener(grpc::AsyncGenericService& service, GrpcQueue& queue) : service_(service), queue_(queue) {}

  void listen(Take take) {
    take_ = std::move(take);
    ask();
  }
  void stop() { take_ = nullptr; }

 private:
  struct Guest final : GrpcEvent {
    explicit Guest(Listener& listener) : listener_(listener) {}
    void happened(bool ok) override { listener_.came(*this, ok); }
    Listener& listener_;
    std::unique_ptr<grpc::GenericServerContext> context = std::make_unique<grpc::GenericServerContext>();
    std::unique_ptr<grpc::GenericServerAsyncReaderWriter> call =
        std::make_unique<grpc::GenericServerAsyncReaderWriter>(context.get());
    grpc::Alarm patience;
    enum { asked_for, held, dismissed, refused } state = asked_for;
  };

  void ask() {
    Guest& guest = guests_.emplace_back(*this);
    auto& queue = queue_.queue();
    service_.RequestCall(guest.context.get(), guest.call.get(), &queue, &queue, &guest);
  }

  void came(Guest& guest, bool ok) {
    const bool has_waited = guest.state == Guest::held || guest.state == Guest::dismissed;
    if (guest.state == Guest::held) --held_;
    if (has_waited && !queue_.closing()) {
      guest.state = Guest::refused;
      guest.call->Finish({grpc::StatusCode::UNAUTHENTICATED, "this is no lane of this job"}, &guest);
      return;
    }
    if (guest.state == Guest::asked_for && ok && !queue_.closing()) {
      const auto& metadata = guest.context->client_metadata();
      const auto found = metadata.find(hello_key);
      GrpcStream* const stream = found == metadata.end() || guest.context->method() != method || !take_
                                     ? nullptr
                                     : take_({found->second.data(), found->second.size()});
      ask();
      if (stream == nullptr) return hold(guest);
      stream->accept(std::move(guest.context), std::move(guest.call));
    }
    guests_.remove_if([&](const Guest& each) { return &each == &guest; });
  }

  void hold(Guest& guest) {
    if (held_ == most_held) {
      const auto oldest = std::ranges::find(guests_, Guest::held, &Guest::state);
      oldest->state = Guest::dismissed;
      oldest->patience.Cancel();
      --held_;
    }
    ++held_;
    guest.state = Guest::held;
    guest.patience.Set(&queue_.queue(), std::chrono::system_clock::now() + longest_hold, &guest);
  }

  static constexpr auto longest_hold = std::chrono::milliseconds(200);
  static constexpr int most_held = 64;

  grpc::AsyncGenericService& service_;
  GrpcQueue& queue_;
  Take take_;
  std::list<Guest> guests_;
  int held_ = 0;  // of them
};

constexpr const char* default_loopback = "127.0.0.1";

// What is not protected is not even offered to others than this host's processes.
std::string loopback_of(const std::string& interface_address) {
  const auto named = parse_address(interface_address, 0);
  return named && named->is_loopback() ? interface_address : default_loopback;
}

// What the server needs as long as it runs.
struct Reception {
  grpc::AsyncGenericService service;
  std::unique_ptr<Listener> listener = nullptr;
  std::vector<std::shared_ptr<grpc::Channel>> channels = {};
};

class GrpcEndpoint final : public Endpoint {
 public:
  GrpcEndpoint(const WorldInfo& info, const ModuleOptions& options)
      : info_(info), security_(options.security), keys_(options.security), reception_(std::make_shared<Reception>()) {
    const bool stays_here = !keys_.given() && !security_.insecure;
    const std::string ip = stays_here ? loopback_of(options.interface_address) : options.interface_address;
    address_.port = listen_at(ip, options.ports);
    address_.token = random_token();
    reception_->listener = std::make_unique<Listener>(reception_->service, *world_.queue);
    // By its other addresses a rank is told from those of this host, and refused, though it does not listen there.
    set_place(address_, options.interface_address == ip ? ip : "");
    if (stays_here && address_.host.empty()) address_.ips.insert(address_.ips.begin(), ip);
    world_.rank = info.rank;
    world_.world = info.world;
    world_.listener = reception_;
  }
  ~GrpcEndpoint() override { world_.close(Clock::now()); }
  GrpcEndpoint(const GrpcEndpoint&) = delete;
  GrpcEndpoint& operator=(const GrpcEndpoint&) = delete;

  std::string address() const override { return address_.text(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses, Clock::time_point deadline) override {
    const auto peers = parse_addresses<TcpAddress>("grpc", info_.world, addresses);
    if (!keys_.given() && !security_.insecure)
      for (std::size_t rank = 0; rank < peers.size(); ++rank)
        refuse_other_host("grpc", static_cast<Rank>(rank), peers[rank].host, peers[rank].ips);
    expect(peers);
    reception_->listener->listen([this](const std::string& said) -> GrpcStream* {
      const auto found = awaited_.find(said);
      if (found == awaited_.end()) return nullptr;
      GrpcStream* const stream = found->second;
      awaited_.erase(found);
      return stream;
    });
    for (Rank peer = 0; peer < info_.rank; ++peer) call(peer, peers[static_cast<std::size_t>(peer)]);
    while (!all_open()) {
      if (Clock::now() >= deadline) throw_missing(peers);
      throw_refused(peers);
      info_.check_peers();
      world_.queue->drive(std::chrono::milliseconds(10));
    }
    reception_->listener->stop();
    return std::make_unique<GrpcTransport>(std::move(world_));
  }

 private:
  // Starts the server; on which port.
  std::uint16_t listen_at(const std::string& ip, const PortRange& ports) {
    // gRPC takes no range. A port of it is held until gRPC shares it, so that no other process comes between.
    const Fd held = ports.first == 0 ? Fd() : listen_on(ip, ports, {});
    const int shared = 1;
    if (held) setsockopt(held.get(), SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared);
    const std::string where = ip.empty() ? "[::]" : ip.find(':') == ip.npos ? ip : "[" + ip + "]";
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(fmt::format("{}:{}", where, held ? local_address(held).port() : 0), keys_.for_server(),
                             &port);
    apply_limits(builder);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, lane_count);  // of a connection, which is a peer's
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, held ? 1 : 0);
    builder.RegisterAsyncGenericService(&reception_->service);
    world_.queue = std::make_unique<GrpcQueue>(builder.AddCompletionQueue());
    world_.server = builder.BuildAndStart();
    if (world_.server && port != 0) return static_cast<std::uint16_t>(port);
    world_.queue->drain();
    world_.server.reset();
    throw Error(ErrorKind::config,
                fmt::format("grpc cannot listen on {}{}; is that an address of this host, and do the key and "
                            "certificate belong together?",
                            where, keys_.given() ? " with TLS" : ""));
  }

  // Streams for all lanes, and the calls that come in for some of them.
  void expect(const std::vector<TcpAddress>& peers) {
    Rank local_ranks = 1;
    for (Rank peer = 0; peer < info_.world; ++peer) {
      if (peer != info_.rank && peers[static_cast<std::size_t>(peer)].host == host_identity()) ++local_ranks;
      for (Lane lane = 0; lane < lane_count; ++lane) {
        auto stream = peer == info_.rank ? nullptr : std::make_unique<GrpcStream>(info_.rank, peer);
        if (peer > info_.rank)
          awaited_[hello(address_.token, {.rank = peer, .epoch = info_.epoch}, info_.rank, lane)] = stream.get();
        world_.streams.push_back(std::move(stream));
      }
    }
    world_.crowded = local_ranks > sysconf(_SC_NPROCESSORS_ONLN);
  }

  void call(Rank peer, const TcpAddress& address) {
    const auto channel = channel_to(address, keys_);
    reception_->channels.push_back(channel);
    grpc::GenericStub stub(channel);
    for (Lane lane = 0; lane < lane_count; ++lane) {
      auto context = std::make_unique<grpc::ClientContext>();
      context->set_wait_for_ready(true);  // it may not listen yet
      context->AddMetadata(hello_key, hello(address.token, info_, peer, lane));
      auto started = stub.PrepareCall(context.get(), method, &world_.queue->queue());
      world_.streams[static_cast<std::size_t>(peer) * lane_count + lane]->call(std::move(context), std::move(started));
    }
  }

  bool all_open() const {
    return std::ranges::all_of(world_.streams, [](const auto& stream) { return !stream || stream->open(); });
  }

  void throw_refused(const std::vector<TcpAddress>& peers) const {
    for (std::size_t i = 0; i < world_.streams.size(); ++i) {
      if (!world_.streams[i] || !world_.streams[i]->refused()) continue;
      const auto peer = static_cast<Rank>(i / lane_count);
      throw Error(
          ErrorKind::unreachable,
          fmt::format("rank {} refused the grpc call of rank {} at {}: {}", peer, info_.rank,
                      target_of(peers[static_cast<std::size_t>(peer)]), world_.streams[i]->status().error_message()),
          peer);
    }
  }

  [[noreturn]] void throw_missing(const std::vector<TcpAddress>& peers) const {
    std::vector<std::string> missing;
    Rank culprit = -1;
    for (Rank peer = 0; peer < info_.world; ++peer) {
      const auto& first = world_.streams[static_cast<std::size_t>(peer) * lane_count];
      if (!first || first->open()) continue;
      culprit = missing.empty() ? peer : -1;
      missing.push_back(peer < info_.rank
                            ? fmt::format("rank {} at {}", peer, target_of(peers[static_cast<std::size_t>(peer)]))
                            : fmt::format("rank {}, which did not call", peer));
    }
    throw Error(
        ErrorKind::unreachable,
        fmt::format("rank {} has no grpc connection to {}; check that they run, that no firewall stands between, "
                    "and that all have certificates of one authority that have not expired, or none",
                    info_.rank, fmt::join(missing, ", ")),
        culprit);
  }

  const WorldInfo info_;
  const SecurityOptions security_;
  const GrpcKeys keys_;
  const std::shared_ptr<Reception> reception_;
  TcpAddress address_;
  GrpcWorld world_;
  std::map<std::string, GrpcStream*> awaited_;  // by what the call says
};

}  // namespace
}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module{
    .version = RANVIER_VERSION,
    .endpoint = [](const ranvier::WorldInfo& info,
                   const ranvier::transport::ModuleOptions& options) -> std::unique_ptr<ranvier::Endpoint> {
      return std::make_unique<ranvier::transport::GrpcEndpoint>(info, options);
    },
    .guest_service = ranvier::transport::grpc_guest_service};
