// The service of proto/ranvier_parameter_server.proto, in a module of its own.
#include "ranvier/guest_service.h"

#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "transport/grpc/grpc_server.h"
#include "transport/grpc/guest_door.h"
#include "transport/grpc/guest_messages.h"
#include "transport/grpc/guest_turns.h"
#include "transport/grpc/spare_vectors.h"
#include "transport/module.h"

namespace ranvier::transport {
namespace {

using Reactor = grpc::ServerGenericBidiReactor;

constexpr const char* pull_method = "/ranvier.v1.ParameterServer/Pull";
constexpr const char* push_method = "/ranvier.v1.ParameterServer/Push";
constexpr std::size_t piece_values = (1 << 20) / sizeof(float);
constexpr int most_calls = 64;  // of one connection
constexpr auto farewell = std::chrono::seconds(1);

grpc::Status status_of(const std::exception& problem) {
  const auto* const error = dynamic_cast<const Error*>(&problem);
  const bool is_theirs = error != nullptr && error->kind() == ErrorKind::usage;
  return {is_theirs ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::UNAVAILABLE, problem.what()};
}

// What a message consists of, where gRPC has it.
class Pieces {
 public:
  explicit Pieces(const grpc::ByteBuffer& message) {
    if (!message.Dump(&slices_).ok()) slices_.clear();
    for (const grpc::Slice& each : slices_) bytes_.push_back(std::as_bytes(std::span(each.begin(), each.size())));
  }
  std::span<const ConstBytes> bytes() const { return bytes_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<ConstBytes> bytes_;
};

grpc::Status has_left() { return {grpc::StatusCode::CANCELLED, "the guest has left"}; }

class Call : public Reactor, private GuestTurns::Waiting {
 public:
  void OnCancel() override {
    if (turns_.withdraw(*this)) end(has_left());
  }
  void OnDone() override { delete this; }

 protected:
  Call(GuestTurns& turns, const grpc::GenericCallbackServerContext& context, std::unique_ptr<GuestDoor::Call> counted)
      : turns_(turns), context_(context), counted_(std::move(counted)) {}

  bool is_cancelled() const { return context_.IsCancelled(); }
  void await_turn() {
    turns_.add(*this);
    if (is_cancelled()) OnCancel();  // which may have come too early
  }
  virtual void serve() = 0;  // throws what the guest is told
  virtual void end(const grpc::Status& status) { Finish(status); }

 private:
  void take_turn() override {
    try {
      serve();
    } catch (const std::exception& problem) {
      end(status_of(problem));
    }
  }
  void miss_turn() override { end({grpc::StatusCode::UNAVAILABLE, "the job ends"}); }

  GuestTurns& turns_;
  const grpc::GenericCallbackServerContext& context_;
  const std::unique_ptr<GuestDoor::Call> counted_;
};

class Pull final : public Call {
 public:
  Pull(const GuestCalls& calls, SpareVectors& spare, GuestTurns& turns,
       const grpc::GenericCallbackServerContext& context, std::unique_ptr<GuestDoor::Call> counted)
      : Call(turns, context, std::move(counted)), calls_(calls), spare_(spare) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return end(has_left());
    try {
      guest_ = read_pull(Pieces(message_).bytes(), calls_.guests);
    } catch (const std::exception& problem) {
      return end(status_of(problem));
    }
    await_turn();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return end(has_left());
    write();
  }

 private:
  void serve() override {
    values_ = spare_.take();
    calls_.pull(guest_, *values_);
    write();
  }
  // From where the values are; gRPC keeps them as long as it needs them.
  void write() {
    const std::size_t count = std::min(piece_values, values_->size() - first_);
    if (count == 0) return end(grpc::Status::OK);
    WireHead head;
    head.add(1, values_->size());
    head.add(2, first_);
    head.add_bytes(3, count * sizeof(float));
    const auto release = [](void* kept) { delete static_cast<std::shared_ptr<std::vector<float>>*>(kept); };
    const std::array<grpc::Slice, 2> slices{grpc::Slice(head.bytes().data(), head.bytes().size()),
                                            grpc::Slice(values_->data() + first_, count * sizeof(float), release,
                                                        new std::shared_ptr<std::vector<float>>(values_))};
    reply_ = grpc::ByteBuffer(slices.data(), slices.size());
    first_ += count;
    StartWrite(&reply_);
  }

  const GuestCalls& calls_;
  SpareVectors& spare_;
  Rank guest_ = 0;
  grpc::ByteBuffer message_, reply_;
  std::shared_ptr<std::vector<float>> values_;
  std::size_t first_ = 0;
};

// Guests of whom a push is under way: one each, so that no more gradients lie here than there are guests.
class PushingGuests {
 public:
  // False: one is.
  bool begin(Rank guest) {
    const std::lock_guard lock(mutex_);
    return guests_.insert(guest).second;
  }
  void end(Rank guest) {
    const std::lock_guard lock(mutex_);
    guests_.erase(guest);
  }

 private:
  std::mutex mutex_;
  std::set<Rank> guests_;
};

class Push final : public Call {
 public:
  Push(const GuestCalls& calls, PushingGuests& pushing, GuestTurns& turns,
       const grpc::GenericCallbackServerContext& context, std::unique_ptr<GuestDoor::Call> counted)
      : Call(turns, context, std::move(counted)),
        calls_(calls),
        pushing_(pushing),
        push_(calls.parameters, calls.guests) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    try {
      if (ok) {
        push_.take(Pieces(message_).bytes());
        if (!is_counted_ && !(is_counted_ = pushing_.begin(push_.guest())))
          return end(
              {grpc::StatusCode::RESOURCE_EXHAUSTED,
               fmt::format("a push of guest {} is under way; wait for its end, and give two programs two numbers",
                           push_.guest())});
        return StartRead(&message_);
      }
      if (is_cancelled()) return end(has_left());
      push_.demand_all();
    } catch (const std::exception& problem) {
      return end(status_of(problem));
    }
    await_turn();
  }

 private:
  void serve() override {
    calls_.push(push_.guest(), push_.push(), push_.gradient());
    end(grpc::Status::OK);
  }
  // The guest's next push may come as soon as it hears of this.
  void end(const grpc::Status& status) override {
    if (std::exchange(is_counted_, false)) pushing_.end(push_.guest());
    if (!status.ok()) return Finish(status);
    const grpc::Slice nothing;
    reply_ = grpc::ByteBuffer(&nothing, 1);
    StartWriteAndFinish(&reply_, {}, status);
  }

  const GuestCalls& calls_;
  PushingGuests& pushing_;
  GuestPush push_;
  bool is_counted_ = false;  // among pushing_
  grpc::ByteBuffer message_, reply_;
};

class Refusal final : public Reactor {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

class Service final : public GuestService, private grpc::CallbackGenericService {
 public:
  Service(GuestCalls calls, const GuestOptions& options)
      : calls_(std::move(calls)), limits_(options.limits), spare_(calls_.parameters) {
    Fd listener = listen(options);
    port_ = local_address(listener).port();
    grpc::ServerBuilder builder;
    door_ = std::make_unique<GuestDoor>(std::move(listener),
                                        builder.experimental().AddExternalConnectionAcceptor(
                                            grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
                                            server_credentials(options.security)),
                                        limits_);
    apply_limits(builder);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, most_calls);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (!server_)
      throw Error(ErrorKind::config,
                  "guests of the parameter servers cannot be served: gRPC starts no server, and says on stderr why; do "
                  "the key and certificate belong together?");
    door_->open();
  }
  ~Service() override {
    door_->close();
    turns_.end();
    server_->Shutdown(std::chrono::system_clock::now() + farewell);
    server_->Wait();
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::uint16_t port() const override { return port_; }
  void open() override { turns_.open(); }
  void close() override { turns_.close(); }

 private:
  static Fd listen(const GuestOptions& options) {
    try {
      return listen_on(options.interface_address, {options.port, options.port}, {});
    } catch (const Error& why) {
      throw Error(why.kind(), fmt::format("guests of the parameter servers cannot be served: {}", why.what()));
    }
  }

  Reactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const bool pulls = context->method() == pull_method;
    if (!pulls && context->method() != push_method) return CallbackGenericService::CreateReactor(context);
    auto call = door_->call(context->peer());
    if (!call)
      return new Refusal(
          {grpc::StatusCode::RESOURCE_EXHAUSTED,
           fmt::format("{} connections have calls under way, and no more may; call again when some have ended",
                       limits_.calling)});
    if (pulls) return new Pull(calls_, spare_, turns_, *context, std::move(call));
    return new Push(calls_, pushing_, turns_, *context, std::move(call));
  }

  const GuestCalls calls_;
  const GuestLimits limits_;
  SpareVectors spare_;
  PushingGuests pushing_;
  GuestTurns turns_;
  std::unique_ptr<GuestDoor> door_;  // outlives the server's calls, as all before it
  std::unique_ptr<grpc::Server> server_;
  std::uint16_t port_ = 0;
};

}  // namespace
}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module{
    .version = RANVIER_VERSION,
    .guest_service = [](ranvier::GuestCalls calls,
                        const ranvier::GuestOptions& options) -> std::unique_ptr<ranvier::GuestService> {
      return std::make_unique<ranvier::transport::Service>(std::move(calls), options);
    }};
