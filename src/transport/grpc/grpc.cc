// The grpc transport: a call of gRPC for each lane between two ranks, all calls of two ranks over one HTTP/2
// connection, which the higher rank makes, at the door where the ranks meet anyway.
//
// A call says in its metadata which job it belongs to (the token that its server has published), from whom it comes and
// for which lane it is; others are refused before a byte of theirs is read. With certificates, nobody gets that far
// whose certificate the job's authority has not signed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grpcpp/server_builder.h>

#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <sstream>
#include <string>

#include "base/host.h"
#include "base/secret.h"
#include "ranvier/error.h"
#include "transport/grpc/grpc_channel.h"
#include "transport/grpc/grpc_guests.h"
#include "transport/grpc/grpc_stream.h"
#include "transport/grpc/grpc_transport.h"
#include "transport/grpc/guest_service.h"
#include "transport/module.h"
#include "transport/plain.h"
#include "transport/published_address.h"
#include "transport/tcp_address.h"
#include "transport/tcp_door.h"
#include "transport/tls.h"

namespace ranvier::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* method = "/ranvier.Lanes/Connect";
constexpr const char* hello_key = "ranvier-hello";
// More than a peer says in HTTP/2 before its first call has come; TLS comes on top.
constexpr std::size_t most_calls_bytes = 4 << 10;

// What gRPC receives into it takes from malloc, half a MiB at a time. glibc gives freed memory of that size back to the
// system, and each page of it has to be made again, until the process has freed something larger: up to that it then
// keeps what is free, and twice as much at the end of the heap (mallopt(3)). Most who train have.
void let_malloc_keep_what_is_freed() {
  static const bool done = [] {
    void* volatile larger = std::malloc(16 << 20);  // which nobody touches
    std::free(larger);
    return true;
  }();
  static_cast<void>(done);
}

std::string hello(const Token& token, const WorldInfo& from, Rank to, Lane lane) {
  return fmt::format("{} {} {} {} {}", hex(token), from.epoch, from.rank, to, lane);
}

// Takes calls as they come: one is always asked for, and asked again when it has come.
class Listener {
 public:
  // The stream that the call is for, and notes that whoever has made it is a rank; null if it is for none.
  using Take = std::function<GrpcStream*(const std::string& hello, const std::string& peer)>;

  Listener(grpc::AsyncGenericService& service, GrpcQueue& queue) : service_(service), queue_(queue) {}

  void listen(Take take) {
    take_ = std::move(take);
    ask();
  }
  void stop() { take_ = nullptr; }

 private:
  struct Call final : GrpcEvent {
    explicit Call(Listener& listener) : listener_(listener) {}
    void happened(bool ok) override { listener_.came(*this, ok); }
    Listener& listener_;
    std::unique_ptr<grpc::GenericServerContext> context = std::make_unique<grpc::GenericServerContext>();
    std::unique_ptr<grpc::GenericServerAsyncReaderWriter> call =
        std::make_unique<grpc::GenericServerAsyncReaderWriter>(context.get());
    bool refused = false;
  };

  void ask() {
    Call& next = calls_.emplace_back(*this);
    auto& queue = queue_.queue();
    service_.RequestCall(next.context.get(), next.call.get(), &queue, &queue, &next);
  }

  void came(Call& call, bool ok) {
    if (ok && !call.refused && !queue_.closing()) {
      const auto& metadata = call.context->client_metadata();
      const auto found = metadata.find(hello_key);
      GrpcStream* const stream = found == metadata.end() || call.context->method() != method || !take_
                                     ? nullptr
                                     : take_({found->second.data(), found->second.size()}, call.context->peer());
      ask();
      if (stream == nullptr) {
        call.refused = true;
        call.call->Finish({grpc::StatusCode::UNAUTHENTICATED, "this is no lane of this job"}, &call);
        return;
      }
      stream->accept(std::move(call.context), std::move(call.call));
    }
    calls_.remove_if([&](const Call& each) { return &each == &call; });
  }

  grpc::AsyncGenericService& service_;
  GrpcQueue& queue_;
  Take take_;
  std::list<Call> calls_;
};

// What the server needs as long as it runs.
struct Reception {
  grpc::AsyncGenericService service;
  std::unique_ptr<Listener> listener = nullptr;
  std::vector<std::shared_ptr<grpc::Channel>> channels = {};
};

class GrpcEndpoint final : public Endpoint {
 public:
  GrpcEndpoint(const WorldInfo& info, const ModuleOptions& options)
      : info_(info),
        security_(options.security),
        keys_(options.security),
        most_greeting_(most_calls_bytes +
                       (keys_.given() ? TlsContext(options.security, Token{}).most_unproved_bytes() : 0)),
        door_(options.door),
        reception_(std::make_shared<Reception>()) {
    address_.port = local_address(door_->listener).port();
    address_.token = random_token();
    set_place(address_, options.interface_address);
    start_server();
    reception_->listener = std::make_unique<Listener>(reception_->service, *world_.queue);
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
    if (stays_here())
      for (std::size_t rank = 0; rank < peers.size(); ++rank)
        refuse_other_host("grpc", static_cast<Rank>(rank), peers[rank].host, peers[rank].ips);
    expect(peers);
    guests_ = std::make_unique<GrpcGuests>(
        std::move(door_), std::move(acceptor_),
        GrpcGuests::Limits{.own_host_only = stays_here(),
                           .bytes = most_greeting_,
                           .expected = static_cast<std::size_t>(info_.world - info_.rank)});
    reception_->listener->listen([this](const std::string& said, const std::string& peer) -> GrpcStream* {
      const auto found = awaited_.find(said);
      if (found == awaited_.end()) return nullptr;
      GrpcStream* const stream = found->second;
      awaited_.erase(found);
      guests_->is_rank(peer);
      return stream;
    });
    for (Rank peer = 0; peer < info_.rank; ++peer) call(peer, peers[static_cast<std::size_t>(peer)]);
    while (!all_open()) {
      if (Clock::now() >= deadline) throw_missing(peers);
      throw_refused(peers);
      info_.check_peers();
      guests_->look(Clock::now());
      world_.queue->drive(std::chrono::milliseconds(2));  // which does not hear of who comes to the door
    }
    reception_->listener->stop();
    guests_.reset();
    return std::make_unique<GrpcTransport>(std::move(world_));
  }

 private:
  // What is not protected is not even offered to others than this host's processes.
  bool stays_here() const { return !keys_.given() && !security_.insecure; }

  void start_server() {
    let_malloc_keep_what_is_freed();
    grpc::ServerBuilder builder;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, keys_.for_server());
    apply_limits(builder);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, lane_count);  // of a connection, which is a peer's
    builder.RegisterAsyncGenericService(&reception_->service);
    world_.queue = std::make_unique<GrpcQueue>(builder.AddCompletionQueue());
    world_.server = builder.BuildAndStart();
    if (world_.server) return;
    world_.queue->drain();
    throw Error(ErrorKind::config, "gRPC cannot start a server; what it says on stderr tells why");
  }

  // Streams for all lanes, and the calls that come in for some of them.
  void expect(const std::vector<TcpAddress>& peers) {
    SharedCores cores;
    for (Rank peer = 0; peer < info_.world; ++peer) {
      const TcpAddress& theirs = peers[static_cast<std::size_t>(peer)];
      if (peer == info_.rank || theirs.host == host_identity()) cores.add_rank(theirs.cpus);
      for (Lane lane = 0; lane < lane_count; ++lane) {
        auto stream = peer == info_.rank ? nullptr : std::make_unique<GrpcStream>(info_.rank, peer);
        if (peer > info_.rank)
          awaited_[hello(address_.token, {.rank = peer, .epoch = info_.epoch}, info_.rank, lane)] = stream.get();
        world_.streams.push_back(std::move(stream));
      }
    }
    world_.ranks_per_core = cores.ranks_per_core();
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
  const std::size_t most_greeting_;
  std::shared_ptr<TcpDoor> door_;  // until all are connected
  std::unique_ptr<GrpcGuests::Acceptor> acceptor_;
  std::unique_ptr<GrpcGuests> guests_;  // while they are connecting
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
