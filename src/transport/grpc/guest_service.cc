// The service of proto/ranvier_parameter_server.proto, in a module of its own.
#include "ranvier/guest_service.h"

#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
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
#include "transport/grpc/quiet_log.h"
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

// Guests of whom a call of one kind is under way: one each, so that no more vectors lie here than there are guests.
class GuestsUnderWay {
  struct Crowd {
    std::mutex mutex;
    std::set<Rank> guests;
  };

 public:
  // A guest's among them. It is left with the last that holds it at the latest, also when all else is gone.
  class Place {
   public:
    Place(std::shared_ptr<Crowd> crowd, Rank guest) : crowd_(std::move(crowd)), guest_(guest) {}
    ~Place() { leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // False: it is taken.
    bool enter() {
      const std::lock_guard lock(crowd_->mutex);
      return is_in_ = crowd_->guests.insert(guest_).second;
    }
    void leave() {
      const std::lock_guard lock(crowd_->mutex);
      if (std::exchange(is_in_, false)) crowd_->guests.erase(guest_);
    }

   private:
    const std::shared_ptr<Crowd> crowd_;
    const Rank guest_;
    bool is_in_ = false;
  };

  explicit GuestsUnderWay(const char* call) : call_(call) {}

  const char* call() const { return call_; }
  // Null: it is taken.
  std::shared_ptr<Place> place(Rank guest) {
    auto place = std::make_shared<Place>(crowd_, guest);
    return place->enter() ? place : nullptr;
  }

 private:
  const char* const call_;
  const std::shared_ptr<Crowd> crowd_ = std::make_shared<Crowd>();
};

// What all calls share.
struct Desk {
  explicit Desk(GuestCalls all) : calls(std::move(all)), spare(calls.parameters) {}

  const GuestCalls calls;
  SpareVectors spare;
  GuestsUnderWay pulling{"pull"}, pushing{"push"};
  GuestTurns turns;
};

grpc::Status has_left() { return {grpc::StatusCode::CANCELLED, "the guest has left"}; }

class Call : public Reactor, private GuestTurns::Waiting {
 public:
  void OnCancel() override {
    if (desk_.turns.withdraw(*this)) end(has_left());
  }
  void OnDone() override { delete this; }

 protected:
  Call(Desk& desk, const grpc::GenericCallbackServerContext& context, std::unique_ptr<GuestDoor::Call> counted)
      : desk_(desk), context_(context), counted_(std::move(counted)) {}

  Desk& desk() { return desk_; }
  bool is_cancelled() const { return context_.IsCancelled(); }
  // Before the call takes memory. False: the guest has one of these, and this has ended.
  bool enter(GuestsUnderWay& guests, Rank guest) {
    place_ = guests.place(guest);
    if (!place_)
      end({grpc::StatusCode::RESOURCE_EXHAUSTED,
           fmt::format("a {} of guest {} is under way; wait for its end, and give two programs two numbers",
                       guests.call(), guest)});
    return place_ != nullptr;
  }
  const std::shared_ptr<GuestsUnderWay::Place>& place() const { return place_; }
  void await_turn() {
    desk_.turns.add(*this);
    if (is_cancelled()) OnCancel();  // which may have come too early
  }
  // The guest's next call may come as soon as it hears of this.
  void end(const grpc::Status& status) {
    forget();
    if (status.ok()) place_->leave();
    place_.reset();
    finish(status);
  }

  virtual void serve() = 0;   // throws what the guest is told
  virtual void forget() = 0;  // gives memory back
  virtual void finish(const grpc::Status& status) { Finish(status); }

 private:
  void take_turn() override {
    try {
      serve();
    } catch (const std::exception& problem) {
      end(status_of(problem));
    }
  }
  void miss_turn() override { end({grpc::StatusCode::UNAVAILABLE, "the job ends"}); }

  Desk& desk_;
  const grpc::GenericCallbackServerContext& context_;
  const std::unique_ptr<GuestDoor::Call> counted_;
  std::shared_ptr<GuestsUnderWay::Place> place_;
};

class Pull final : public Call {
 public:
  Pull(Desk& desk, const grpc::GenericCallbackServerContext& context, std::unique_ptr<GuestDoor::Call> counted)
      : Call(desk, context, std::move(counted)) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return end(has_left());
    try {
      guest_ = read_pull(Pieces(message_).bytes(), desk().calls.guests);
      if (!enter(desk().pulling, guest_)) return;
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
  // Of one that is cut off gRPC may keep the values for longer than this is there: the guest has its place for as long.
  void serve() override {
    auto values = desk().spare.take();
    desk().calls.pull(guest_, *values);
    auto* const kept = values.get();
    values_ = {kept, [values = std::move(values), place = place()](auto*) {}};
    write();
  }
  void forget() override {
    reply_.Clear();
    values_.reset();
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

  Rank guest_ = 0;
  grpc::ByteBuffer message_, reply_;
  std::shared_ptr<std::vector<float>> values_;
  std::size_t first_ = 0;
};

class Push final : public Call {
 public:
  Push(Desk& desk, const grpc::GenericCallbackServerContext& context, std::unique_ptr<GuestDoor::Call> counted)
      : Call(desk, context, std::move(counted)), push_(desk.calls.parameters, desk.calls.guests) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    try {
      if (ok) {
        push_.take(Pieces(message_).bytes());
        if (!place() && !enter(desk().pushing, push_.guest())) return;
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
    desk().calls.push(push_.guest(), push_.push(), push_.gradient());
    end(grpc::Status::OK);
  }
  void forget() override {
    message_.Clear();
    push_.forget();
  }
  void finish(const grpc::Status& status) override {
    if (!status.ok()) return Finish(status);
    const grpc::Slice nothing;
    reply_ = grpc::ByteBuffer(&nothing, 1);
    StartWriteAndFinish(&reply_, {}, status);
  }

  GuestPush push_;
  grpc::ByteBuffer message_, reply_;
};

class Refusal final : public Reactor {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

class Service final : public GuestService, private grpc::CallbackGenericService {
 public:
  Service(GuestCalls calls, const GuestOptions& options) : limits_(options.limits), desk_(std::move(calls)) {
    keep_log_short();
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
    builder.SetResourceQuota(grpc::ResourceQuota("guests").Resize(limits_.unread_bytes));
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
    desk_.turns.end();
    server_->Shutdown(std::chrono::system_clock::now() + farewell);
    server_->Wait();
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::uint16_t port() const override { return port_; }
  void open() override { desk_.turns.open(); }
  void close() override { desk_.turns.close(); }

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
    if (pulls) return new Pull(desk_, *context, std::move(call));
    return new Push(desk_, *context, std::move(call));
  }

  const GuestLimits limits_;
  Desk desk_;
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
