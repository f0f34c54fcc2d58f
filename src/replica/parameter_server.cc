#include "ranvier/parameter_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "ranvier/error.h"
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

// What stands before the gradient of a push, and is all of any other request. Ranks of one job are of one build.
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
        count_(parameters.size()),
        owned_(deal(owners.empty() ? all_owners(rule, comm.world()) : checked(std::move(owners), comm.world()),
                    rule.ranges)),
        shard_(values_of(comm.rank(), parameters), comm.world(), rule, most_guests),
        desk_(comm, workers_of(rule, comm.world()), rule.bound, before, start_tag) {
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
  struct Range {
    std::size_t first;
    std::size_t size;
  };
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
  // In turn; of each rank those that are not empty.
  std::vector<std::vector<Range>> deal(const std::vector<Rank>& owners, std::size_t ranges) const {
    std::vector<std::vector<Range>> owned(static_cast<std::size_t>(comm_.world()));
    if (ranges == 0) ranges = owners.size();
    for (std::size_t i = 0; i < ranges; ++i) {
      const std::size_t first = count_ * i / ranges, behind = count_ * (i + 1) / ranges;
      if (behind > first) owned[static_cast<std::size_t>(owners[i % owners.size()])].push_back({first, behind - first});
    }
    return owned;
  }
  const std::vector<Range>& owned_by(Rank rank) const { return owned_[static_cast<std::size_t>(rank)]; }
  std::size_t size_of(Rank rank) const {
    std::size_t size = 0;
    for (const Range& each : owned_by(rank)) size += each.size;
    return size;
  }
  // Rank 0, which gives samples out, hears of each push.
  bool is_asked(Rank rank) const { return rank == 0 || !owned_by(rank).empty(); }

  // What `rank` owns of all, where it lies if it is one range, else one behind the other in `space`.
  template <class Value>
  std::span<Value> part_of(std::span<Value> all, Rank rank, std::vector<float>& space) const {
    if (all.empty() || owned_by(rank).empty()) return {};
    if (owned_by(rank).size() == 1) return all.subspan(owned_by(rank).front().first, owned_by(rank).front().size);
    space.clear();
    for (const auto [first, size] : owned_by(rank)) {
      const auto part = all.subspan(first, size);
      space.insert(space.end(), part.begin(), part.end());
    }
    return space;
  }
  void put_back(std::span<const float> part, Rank rank, std::span<float> all) const {
    for (const auto [first, size] : owned_by(rank)) {
      std::ranges::copy(part.first(size), all.begin() + static_cast<std::ptrdiff_t>(first));
      part = part.subspan(size);
    }
  }
  std::vector<float> values_of(Rank rank, std::span<const float> all) const {
    std::vector<float> space;
    const auto part = part_of(all, rank, space);
    return {part.begin(), part.end()};
  }

  template <class Value>
  static TypedSpan bytes(Value& value) {
    return {const_cast<void*>(static_cast<const void*>(&value)), sizeof value, DType::u8};
  }

  // The same request to every server, with its range of the gradient; what each holds afterwards.
  void ask(const Header& header, std::span<const float> gradient, std::span<float> parameters) {
    std::vector<std::vector<std::byte>> messages;
    std::vector<std::vector<float>> arriving(static_cast<std::size_t>(comm_.world()));  // of several ranges
    std::vector<float> space;
    std::vector<Work> under_way;
    for (Rank server = 0; server < comm_.world(); ++server) {
      if (server == comm_.rank() || !is_asked(server)) continue;
      const auto part = part_of(gradient, server, space);
      auto& message = messages.emplace_back(sizeof header + part.size_bytes());
      std::memcpy(message.data(), &header, sizeof header);
      if (!part.empty()) std::memcpy(message.data() + sizeof header, part.data(), part.size_bytes());
      const auto into = part_of(parameters, server, arriving[static_cast<std::size_t>(server)]);
      under_way.push_back(comm_.start_recv(into, server, tag_of(header)));
      under_way.push_back(comm_.start_send({message.data(), message.size(), DType::u8}, server, request_tag));
    }
    if (is_asked(comm_.rank())) {
      const auto held = take(comm_.rank(), header, part_of(gradient, comm_.rank(), space));
      put_back(held, comm_.rank(), parameters);
    }
    for (Work& each : under_way) each.wait();
    for (Rank server = 0; server < comm_.world(); ++server)
      if (const auto& part = arriving[static_cast<std::size_t>(server)]; !part.empty())
        put_back(part, server, parameters);
  }

  // A worker and guests may ask at the same time.
  static std::uint64_t tag_of(const Header& header) { return header.guest >= 0 ? guest_values_tag : values_tag; }

  // A push or a pull of this rank's shard.
  std::vector<float> take(Rank worker, const Header& header, std::span<const float> gradient) {
    const std::lock_guard lock(mutex_);
    const bool is_guest = header.guest >= 0;
    const Rank from = is_guest ? comm_.world() + header.guest : worker;
    if (header.kind == Kind::push && shard_.push(from, header.number, header.push.rate, header.push.share, gradient) &&
        !is_guest)
      desk_.ended_step(worker, header.push.samples);
    const auto held = shard_.pull(from);
    return {held.begin(), held.end()};
  }

  // The server's thread, until all other workers have left.
  void serve() {
    try {
      replica::serve_requests(comm_, request_tag, sizeof(Header) + size_of(comm_.rank()) * sizeof(float),
                              [this](Rank from, ConstBytes request) { return answer(from, request); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      desk_.fail(failure_);
    }
  }

  // False: the worker has left.
  bool answer(Rank worker, ConstBytes message) {
    Header header;
    if (message.size() < sizeof header)
      throw Error(ErrorKind::mismatch, "a request to the parameter server is cut short", worker);
    std::memcpy(&header, message.data(), sizeof header);
    const ConstBytes rest = message.subspan(sizeof header);
    if (header.kind == Kind::leave) return false;
    if (header.kind == Kind::begin) {
      desk_.asks(worker, header.stop_at, header.most);
    } else {
      std::vector<float> gradient(rest.size() / sizeof(float));
      if (!gradient.empty()) std::memcpy(gradient.data(), rest.data(), rest.size());
      const auto held = take(worker, header, gradient);
      comm_.send(held, worker, tag_of(header));
    }
    if (comm_.rank() == 0) desk_.answer();
    return true;
  }

  Communicator& comm_;
  const std::size_t count_;
  const std::vector<std::vector<Range>> owned_;  // by rank
  std::mutex mutex_;
  std::mutex guests_mutex_;  // one of them at a time
  ParameterShard shard_;
  SampleDesk desk_;
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
