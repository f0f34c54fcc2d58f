#include "ranvier/parameter_server.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "ranvier/error.h"
#include "replica/owned_ranges.h"
#include "replica/requests.h"
#include "replica/sample_desk.h"

namespace ranvier {
namespace {

using replica::SampleDesk;

// Apart from what a program sends itself.
constexpr std::uint64_t request_tag = 0x70732d31;
constexpr std::uint64_t start_tag = 0x70732d32;
constexpr std::uint64_t values_tag = 0x70732d33;
constexpr std::uint64_t guest_values_tag = 0x70732d34;

enum class Kind : std::uint64_t { begin, push, pull, leave };

// What stands before the gradient of a push, and is all of any other request. Ranks of one job are of one build, which
// does not make every one of them right: see checked_request().
struct Header {
  Kind kind = Kind::begin;
  std::uint64_t number = 0;         // push
  ParameterServer::Push push = {};  // push
  std::uint64_t stop_at = 0;        // begin
  std::uint64_t most = 0;           // begin
  Rank guest = -1;                  // push and pull: for whom, if not for the sender
};

}  // namespace

class ParameterServer::Impl {
 public:
  Impl(Communicator& comm, const ServerRule& rule, std::span<const float> parameters, std::uint64_t before,
       std::vector<Rank> owners)
      : comm_(comm),
        owned_(parameters.size(), comm.world(),
               owners.empty() ? all_owners(rule, comm.world()) : checked(std::move(owners), comm.world()), rule.ranges),
        workers_(workers_of(rule, comm.world())),
        shard_(own_of(parameters), comm.world(), rule, most_guests),
        desk_(comm, workers_, rule.bound, before, start_tag) {
    if (comm_.world() > 1) thread_ = start_thread<std::jthread>("the parameter server", [this] { serve(); });
  }
  ~Impl() {
    if (thread_.joinable() && !left_) comm_.abort("its training ended before its parameter servers");
  }

  Start begin(std::uint64_t stop_at, std::uint64_t most) {
    if (comm_.rank() == 0) return desk_.begin(stop_at, most);
    const Header header{.kind = Kind::begin, .stop_at = stop_at, .most = most};
    SampleDesk::Answer answer{};
    Work answering = desk_.expect(answer);
    comm_.send(bytes(header), 0, request_tag);
    answering.wait();
    return SampleDesk::read(answer);
  }

  void exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters) {
    ++number_;
    ask({.kind = Kind::push, .number = number_, .push = push}, gradient, parameters);
    if (comm_.rank() == 0) desk_.answer();
  }
  void set_workers(std::size_t workers) {
    const std::lock_guard lock(mutex_);
    shard_.set_workers(workers);
  }
  void pull(std::span<float> parameters) { ask({.kind = Kind::pull}, {}, parameters); }

  void pull_for(Rank guest, std::span<float> parameters) {
    const std::lock_guard lock(guests_mutex_);
    ask({.kind = Kind::pull, .guest = guest}, {}, parameters);
  }
  void exchange_for(Rank guest, std::uint64_t push_number, std::span<const float> gradient, const Push& push,
                    std::span<float> parameters) {
    const std::lock_guard lock(guests_mutex_);
    ask({.kind = Kind::push, .number = push_number, .push = push, .guest = guest}, gradient, parameters);
  }

  void leave() {
    left_ = true;
    const Header header{.kind = Kind::leave};
    for (Rank server = 0; server < comm_.world(); ++server)
      if (server != comm_.rank()) comm_.send(bytes(header), server, request_tag);
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static std::vector<Rank> all_owners(const ServerRule& rule, Rank world) {
    std::vector<Rank> owners(rule.servers > 0 ? rule.servers : static_cast<std::size_t>(world));
    std::iota(owners.begin(), owners.end(), rule.servers > 0 ? workers_of(rule, world) : 0);
    return owners;
  }
  static std::vector<Rank> checked(std::vector<Rank> owners, Rank world) {
    std::set<Rank> known;
    for (const Rank owner : owners)
      if (owner < 0 || owner >= world || !known.insert(owner).second)
        throw Error(ErrorKind::usage,
                    fmt::format("rank {} cannot own a range of the parameters twice, or in a world of "
                                "{}; name ranks from 0 to {}, each once",
                                owner, world, world - 1));
    return owners;
  }
  // Rank 0, which gives samples out, hears of each push.
  bool is_asked(Rank rank) const { return rank == 0 || owned_.size_of(rank) > 0; }
  // One range behind the other.
  std::vector<float> own_of(std::span<const float> all) const {
    std::vector<float> own(owned_.size_of(comm_.rank()));
    owned_.collect(all, comm_.rank(), std::as_writable_bytes(std::span(own)).data());
    return own;
  }

  template <class Value>
  static TypedSpan bytes(Value& value) {
    return {const_cast<void*>(static_cast<const void*>(&value)), sizeof value, DType::u8};
  }

  // The same request to every server, with its range of the gradient; what each holds afterwards.
  void ask(const Header& header, std::span<const float> gradient, std::span<float> parameters) {
    std::vector<std::unique_ptr<std::byte[]>> requests;
    std::vector<std::pair<Rank, std::unique_ptr<float[]>>> arriving;  // of several ranges
    std::vector<Work> under_way;
    for (Rank server = 0; server < comm_.world(); ++server) {
      if (server == comm_.rank() || !is_asked(server)) continue;
      const std::size_t size = owned_.size_of(server);
      const std::size_t length = sizeof header + (gradient.empty() ? 0 : size * sizeof(float));
      std::byte* const request = requests.emplace_back(std::make_unique_for_overwrite<std::byte[]>(length)).get();
      std::memcpy(request, &header, sizeof header);
      if (!gradient.empty()) owned_.collect(gradient, server, request + sizeof header);
      auto into = owned_.in_place(parameters, server);
      if (!into)
        into = {arriving.emplace_back(server, std::make_unique_for_overwrite<float[]>(size)).second.get(), size};
      under_way.push_back(comm_.start_recv(*into, server, tag_of(header)));
      under_way.push_back(comm_.start_send({request, length, DType::u8}, server, request_tag));
    }
    if (is_asked(comm_.rank())) {
      const auto in_place = owned_.in_place(gradient, comm_.rank());
      const std::vector<float> collected = in_place ? std::vector<float>() : own_of(gradient);
      take(comm_.rank(), header, in_place ? *in_place : collected,
           [&](std::span<const float> held) { owned_.spread(held, comm_.rank(), parameters); });
    }
    for (Work& each : under_way) each.wait();
    for (const auto& [server, part] : arriving) owned_.spread({part.get(), owned_.size_of(server)}, server, parameters);
  }

  // A worker and guests may ask at the same time.
  static std::uint64_t tag_of(const Header& header) { return header.guest >= 0 ? guest_values_tag : values_tag; }

  // A push or a pull of this rank's shard, and what is done with what it holds then.
  template <class Use>
  void take(Rank worker, const Header& header, std::span<const float> gradient, const Use& use) {
    const std::lock_guard lock(mutex_);
    const bool is_guest = header.guest >= 0;
    const Rank from = is_guest ? comm_.world() + header.guest : worker;
    if (header.kind == Kind::push && shard_.push(from, header.number, header.push.rate, header.push.share, gradient) &&
        !is_guest)
      desk_.ended_step(worker, header.push.samples);
    use(shard_.pull(from));
  }

  // The server's thread, until all other workers have left.
  void serve() {
    try {
      replica::serve_requests(comm_, request_tag, sizeof(Header) + bytes_owned(),
                              [this](Rank from, ConstBytes request) { return answer(from, request); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      desk_.fail(failure_);
    }
  }
  std::size_t bytes_owned() const { return owned_.size_of(comm_.rank()) * sizeof(float); }

  // Also of a rank that runs wild: what follows counts on every number of it.
  Header checked_request(Rank worker, ConstBytes message) const {
    const auto refuse = [&](const char* why) { replica::refuse(comm_, worker, why); };
    Header header;
    if (message.size() < sizeof header) refuse("its request is cut short");
    std::memcpy(&header, message.data(), sizeof header);
    const bool pushes = header.kind == Kind::push;
    if (header.kind > Kind::leave) refuse("no request is of that kind");
    if (message.size() - sizeof header != (pushes ? bytes_owned() : 0)) refuse("its gradient is of another size");
    if (header.guest < -1 || header.guest >= most_guests) refuse("there is no such guest");
    if (header.kind == Kind::begin && comm_.rank() != 0) refuse("samples are given out by rank 0");
    if ((header.kind == Kind::begin || (pushes && header.guest < 0)) && worker >= workers_)
      refuse("it is a server and takes no steps");
    return header;
  }

  // False: the worker has left.
  bool answer(Rank worker, ConstBytes message) {
    const Header header = checked_request(worker, message);
    if (header.kind == Kind::leave) return false;
    if (header.kind == Kind::begin) {
      desk_.asks(worker, header.stop_at, header.most);
    } else {
      const ConstBytes gradient = message.subspan(sizeof header);
      pushed_.resize(gradient.size() / sizeof(float));
      if (!pushed_.empty()) std::memcpy(pushed_.data(), gradient.data(), gradient.size());
      try {
        take(worker, header, pushed_, [&](std::span<const float> held) { held_.assign(held.begin(), held.end()); });
      } catch (const Error& problem) {
        replica::refuse(comm_, worker, problem.what());
      }
      comm_.send(held_, worker, tag_of(header));
    }
    if (comm_.rank() == 0) desk_.answer();
    return true;
  }

  Communicator& comm_;
  const replica::OwnedRanges owned_;
  std::mutex mutex_;
  std::mutex guests_mutex_;  // one of them at a time
  const Rank workers_;       // those before the ranks that only serve
  ParameterShard shard_;
  SampleDesk desk_;
  std::vector<float> pushed_;  // of the server's thread: what it is asked for, …
  std::vector<float> held_;    // … and answers
  std::exception_ptr failure_;
  std::uint64_t number_ = 0;  // of this worker's pushes
  bool left_ = false;
  std::jthread thread_;
};

ParameterServer::ParameterServer(Communicator& comm, const ServerRule& rule, std::span<const float> parameters,
                                 std::uint64_t before, std::vector<Rank> owners)
    : impl_(std::make_unique<Impl>(comm, rule, parameters, before, std::move(owners))) {}
ParameterServer::~ParameterServer() = default;
ParameterServer::Start ParameterServer::begin(std::uint64_t stop_at, std::uint64_t most) {
  return impl_->begin(stop_at, most);
}
void ParameterServer::set_workers(std::size_t workers) { impl_->set_workers(workers); }
void ParameterServer::exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters) {
  impl_->exchange(gradient, push, parameters);
}
void ParameterServer::pull(std::span<float> parameters) { impl_->pull(parameters); }
void ParameterServer::pull_for(Rank guest, std::span<float> parameters) { impl_->pull_for(guest, parameters); }
void ParameterServer::exchange_for(Rank guest, std::uint64_t push_number, std::span<const float> gradient,
                                   const Push& push, std::span<float> parameters) {
  impl_->exchange_for(guest, push_number, gradient, push, parameters);
}
void ParameterServer::leave() { impl_->leave(); }

}  // namespace ranvier
