#include "ranvier/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "base/rank_names.h"
#include "engine/bounded_calls.h"
#include "engine/calls.h"
#include "engine/engine.h"
#include "engine/group.h"
#include "engine/learning.h"
#include "engine/link_probe.h"
#include "engine/news_desk.h"
#include "engine/rendezvous.h"
#include "engine/siblings.h"
#include "engine/terms.h"
#include "engine/trials.h"
#include "engine/tuning_file.h"
#include "engine/vendor_calls.h"
#include "ranvier/timeouts.h"

namespace ranvier {
namespace {

using engine::BoundedCalls;
using engine::by_vendor;
using engine::CollectiveCall;
using engine::Engine;
using engine::Terms;
using std::chrono::steady_clock;

// In larger worlds to go through the programs of all candidates would take longer than what it may gain in most runs.
constexpr Rank most_tried = 64;

double now() { return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count(); }

// They have met, if only just.
std::chrono::nanoseconds time_until(steady_clock::time_point deadline) {
  return std::max<std::chrono::nanoseconds>(deadline - steady_clock::now(), engine::least_to_connect);
}

// What the program said about choosing algorithms.
struct Guidance {
  TuningTable tuning = {};
  std::shared_ptr<const Topology> topology = nullptr;
};

}  // namespace

class Communicator::Impl {
 public:
  // Where this throws, the control plane ends before the desk that it calls: both stay the caller's until then.
  Impl(const CommunicatorOptions& options, Guidance guidance, engine::Links&& links,
       std::unique_ptr<engine::NewsDesk>&& news)
      : options_(options),
        guidance_(std::move(guidance)),
        rank_name_(options.world_ranks),
        rank_(links.transport->rank()),
        world_(links.transport->world()),
        ranks_per_node_(links.ranks_per_node),
        on_one_host_(links.on_one_host),
        hosts_apart_(links.hosts_apart),
        transport_name_(links.transport->traits().name),
        own_terms_(Terms::of(links.transport->traits(), links.crowded, options.link_bytes_per_second)),
        terms_(own_terms_),
        links_(engine::nominal_links(transport_name_, terms_.crowded)),
        peer_memory_(links.transport->peer_memory()),
        answers_(links.transport->answers_in_place()),
        vendor_(links.transport->vendor_collectives(), transport_name_, rank_, world_, rank_name_),
        bounded_(*links.transport, options),
        news_(std::move(news)),
        control_(std::move(links.control)),
        engine_(std::make_shared<Engine>(
            std::move(links.transport),
            engine::EngineOptions{.epoch = options.epoch,
                                  .background_progress = options.background_progress,
                                  .crowded = own_terms_.crowded,
                                  .control = control_.get(),
                                  .names = {.rank = rank_name_, .element = options.element_name},
                                  .group = options.name,
                                  .siblings = options.siblings,
                                  .check_interrupt = options.check_interrupt})) {
    const bool will_agree = world_ > 1 && control_ != nullptr;
    if (will_agree) engine_->renumber(engine::first_of_meeting);
    if (control_) engine::stand_behind(*control_, engine_);
    if (news_) news_->deliver_to(*engine_);
    if (will_agree) {
      terms_ = {};
      links_ = engine::nominal_links(transport_name_, terms_.crowded);
    }
    prepare_calls(will_agree ? nullptr : guidance_.topology);
    if (will_agree) return;
    prefer_vendor();
    begin_to_learn();
  }
  ~Impl() {
    if (const auto mismatch = leave())
      std::fprintf(stderr, "ranvier: %s\n%s", mismatch->what(), mismatch->flight_record().c_str());
  }

  // What nobody has been told of yet.
  std::optional<Error> leave() {
    const std::lock_guard lock(leaving_);
    if (std::exchange(left_, true)) return std::nullopt;
    engine_->close();
    std::optional<Error> mismatch = engine_->untold_mismatch();
    if (engine_->closed_in_order()) keep_what_was_learned();
    // The goodbye is the last that the others hear.
    if (control_)
      if (const auto found = control_->leave(); found && engine_->closed_in_order()) mismatch = found;
    if (mismatch) return engine_->with_record(*mismatch);
    return std::nullopt;
  }

  void demand_control(std::string_view what) const {
    if (!control_)
      throw Error(
          ErrorKind::usage,
          fmt::format("{} needs a communicator made by connect; one over a ready transport has no control plane",
                      what));
  }

  // Of some of its ranks, among them this one, who all call.
  std::unique_ptr<Impl> part(const std::vector<Rank>& members, const engine::Exchange& exchange,
                             const std::string& name) const {
    const auto deadline = steady_clock::now() + options_.join_timeout;
    CommunicatorOptions options = engine::options_of_part(options_, members, name);
    Guidance guidance{.tuning = guidance_.tuning, .topology = nullptr};
    const auto self = std::find(members.begin(), members.end(), rank_);
    auto news = std::make_unique<engine::NewsDesk>();
    auto links = engine::meet({.rank = static_cast<Rank>(self - members.begin()),
                               .world = static_cast<Rank>(members.size()),
                               .epoch = options_.epoch},
                              options, guidance.tuning, exchange, deadline, news->events());
    links.crowded = terms_.crowded;
    // A group that shares a host may have none of the library's collectives, where the whole world has.
    if (options.algorithm == by_vendor && links.transport->vendor_collectives() == nullptr) options.algorithm = "auto";
    auto impl = std::make_unique<Impl>(options, std::move(guidance), std::move(links), std::move(news));
    impl->agree_on_terms(this, time_until(deadline));
    return impl;
  }

  // Then the ranks measure what their links can do, but for those that have been measured in a larger world.
  // `parent`: null, or what this is a group of.
  void agree_on_terms(const Impl* parent, std::chrono::nanoseconds timeout) {
    if (world_ == 1 || !control_) return;
    const auto run_one = [&](const Request& request) { run(request, timeout); };
    terms_ = engine::agree(own_terms_, run_one);
    links_ = engine::nominal_links(transport_name_, terms_.crowded);
    links_.byte = std::max(links_.byte, terms_.least_seconds_per_byte);
    prepare_calls(nullptr);
    // Of the same kind, its links are among those that were measured.
    if (parent != nullptr && parent->transport_name_ == transport_name_) {
      links_ = parent->links_of(options_.world_ranks);
      are_links_measured_ = parent->are_links_measured_;
      if (parent->world_ == world_ && parent->ranks_per_node_ == ranks_per_node_) trials_ = parent->trials_;
    } else if (options_.measure) {
      are_links_measured_ = true;
      links_ = engine::measure_links(engine::nominal_links(transport_name_, terms_.crowded),
                                     {.rank = rank_,
                                      .world = world_,
                                      .ranks_per_node = ranks_per_node_,
                                      .on_one_host = on_one_host_,
                                      .hosts_apart = hosts_apart_,
                                      .slice_bytes = terms_.slice_bytes,
                                      .least_seconds_per_byte = terms_.least_seconds_per_byte},
                                     run_one);
      if (trials_tell()) try_contenders(run_one);
    }
    if (!on_one_host_) cut_for_lines();
    prepare_calls(guidance_.topology);
    engine_->renumber(0);
    engine_->forget_absences();
    prefer_vendor();
    begin_to_learn();
  }

  // What is known of them where those ranks of the world, some of this one's, are by themselves.
  LinkModel links_of(const std::vector<Rank>& members) const {
    LinkModel found = links_;
    found.lines.clear();
    for (std::size_t i = 0; !links_.lines.empty() && i < members.size(); ++i) {
      const auto& all = options_.world_ranks;  // none: all of the world's
      const auto own = all.empty() ? static_cast<std::size_t>(members[i])
                                   : static_cast<std::size_t>(std::ranges::find(all, members[i]) - all.begin());
      found.lines.push_back(links_.lines[own]);
    }
    return found;
  }

  void cut_for_lines() {
    const double seconds_per_byte = std::max(links_.byte, links_.between);
    const double latency = links_.latency + links_.message;
    ahead_bytes_ = ahead_for(latency, seconds_per_byte, terms_.slice_bytes);
    lead_bytes_ = lead_for(latency, seconds_per_byte);
    terms_.slice_bytes = slice_for(seconds_per_byte, terms_.slice_bytes);
  }

  // Between hosts the model is near, and a trial may end before a line shows how little it carries for long. A topology
  // has rows of its own for each root, and whoever names one knows what its links carry. Groups may be many, and side
  // by side.
  bool trials_tell() const {
    const bool asked_for = options_.algorithm == "auto" && guidance_.topology == nullptr &&
                           (options_.learn || guidance_.tuning.rows().empty());
    return asked_for && on_one_host_ && options_.world_ranks.empty() && world_ <= most_tried &&
           terms_.least_seconds_per_byte == 0 && bounded_.tolerated() == 0;
  }
  void try_contenders(const std::function<void(const Request&)>& run_one) {
    prepare_calls(nullptr);  // by what has just been measured
    trials_ = engine::try_contenders(*calls_->selection(), {}, run_one, now);
  }

  // By a new table what was learned is given up. Nothing is learned where sums do not wait for all that was sent.
  void begin_to_learn() {
    learning_.reset();
    if (!options_.learn || options_.algorithm != "auto" || world_ == 1 || bounded_.tolerated() > 0) return;
    learning_.emplace(engine::LearningSettings{
        .selection = calls_->selection(),
        .given = guidance_.tuning,
        .check = [this](const Request& request) { check(request); },
        .run = [this](const Request& request) { run(request, timeout_of(request.timeout)); },
        .start = [this](const Request& request) { return start(request, timeout_of(request.timeout)); },
        .clock = now});
  }

  // Whose file all go by, and none for groups, of which there may be many: see CommunicatorOptions. The others are
  // waiting for the goodbye.
  void keep_what_was_learned() const {
    if (!learning_ || rank_ != 0 || !options_.world_ranks.empty() || options_.tuning.empty()) return;
    try {
      learning_->add_to(options_.tuning);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ranvier: what auto learned is lost: %s\n", error.what());
    }
  }

  // Only from now on: ranks meet by ranvier's own collectives, which prove every link.
  void prefer_vendor() {
    if (options_.algorithm == by_vendor) vendor_.prefer();
  }

  // While ranks meet, every link may be used.
  void prepare_calls(const std::shared_ptr<const Topology>& topology) {
    claimed_for_ = {};
    calls_.emplace(engine::CallSettings{.rank = rank_,
                                        .world = world_,
                                        .epoch = options_.epoch,
                                        .ranks_per_node = ranks_per_node_,
                                        .on_one_host = on_one_host_,
                                        .algorithm = options_.algorithm == by_vendor ? "auto" : options_.algorithm,
                                        .tuning = guidance_.tuning,
                                        .links = links_,
                                        .trials = trials_,
                                        .transport = std::string(transport_name_),
                                        .topology = topology,
                                        .slice_bytes = terms_.slice_bytes,
                                        .buffered_bytes = terms_.buffered_bytes,
                                        .ahead_bytes = ahead_bytes_,
                                        .lead_bytes = lead_bytes_,
                                        .peer_memory = peer_memory_,
                                        .answers = answers_,
                                        .names = rank_name_});
  }

  // Throws what run() and start() throw of a request that makes no sense. One with bounded loss makes as much as an
  // exact one.
  void check(const Request& request) {
    if (bounded_.serves(request) || !vendor_.serves(request)) calls_->prepare(request);
  }

  void run(const Request& request, std::chrono::nanoseconds timeout) {
    if (bounded_.serves(request)) return start(request, timeout).wait();
    BoundedCalls::lose_nothing(request);
    if (vendor_.serves(request)) return start(request, timeout).wait();
    engine::CollectiveOperation* operation = engine_->try_claim();
    if (operation == nullptr) return start(request, timeout).wait();
    try {
      if (!calls_->serves(claimed_for_, request)) {
        claimed_for_ = {};
        operation->reset(calls_->prepare(request));
        if (engine::RequestKey::even(request)) claimed_for_ = calls_->key_of(request);
      }
    } catch (...) {
      engine_->drop_claim();
      throw;
    }
    const engine::Ticket ticket = engine_->next_ticket(request.priority, operation->call().stamp);
    const auto [input, output] = memory(request, ticket.lane);
    operation->restart(input, output, ticket);
    engine_->run_claimed(timeout);
  }

  Work start(const Request& request, std::chrono::nanoseconds timeout) {
    engine_->check_alive();
    if (bounded_.serves(request)) return Work(bounded_.start(*engine_, *calls_, request, timeout));
    BoundedCalls::lose_nothing(request);
    if (vendor_.serves(request)) return Work(vendor_.start(*engine_, request, timeout));
    CollectiveCall call = calls_->prepare(request);
    call.set_ticket(engine_->next_ticket(request.priority, call.stamp));
    const auto [input, output] = memory(request, call.ticket.lane);
    call.set_memory(input, output);
    return Work(engine_->start(std::move(call), timeout));
  }

  std::pair<std::byte*, std::byte*> memory(const Request& request, Lane lane) {
    if (request.collective == Collective::barrier) return {&barrier_memory_[lane], &barrier_memory_[lane]};
    // Programs only read from the input buffer.
    return {static_cast<std::byte*>(const_cast<void*>(request.input.data)),
            static_cast<std::byte*>(request.output.data)};
  }

  std::chrono::nanoseconds timeout_of(const std::optional<std::chrono::milliseconds>& timeout) const {
    if (timeout && timeout->count() < 0)
      throw Error(ErrorKind::usage, fmt::format("a timeout of {} ms is over before it begins; leave it out for the "
                                                "communicator's, or give one above 0",
                                                timeout->count()));
    return bounded(timeout.value_or(options_.timeout));
  }
  void demand_memory(ConstTypedSpan data, std::string_view what) const {
    if (data.data == nullptr && data.count > 0)
      throw Error(ErrorKind::usage,
                  fmt::format("{} on {}: {} elements and no memory", what, rank_name_(rank_), data.count));
  }

  void demand_peer(Rank peer, std::string_view what) const {
    if (peer < 0 || peer >= world_ || peer == rank_)
      throw Error(ErrorKind::usage,
                  fmt::format("{} on {}: {} is not another rank of a {} of {}", what, rank_name_(rank_),
                              rank_name_(peer), options_.world_ranks.empty() ? "world" : "group", world_));
  }

  const CommunicatorOptions options_;
  Guidance guidance_;
  const RankNames rank_name_;
  const Rank rank_;
  const Rank world_;
  const Rank ranks_per_node_;
  const bool on_one_host_;
  const bool hosts_apart_;
  const std::string_view transport_name_;
  const Terms own_terms_;        // that this rank's own transport prefers
  Terms terms_;                  // that all have agreed on
  std::size_t ahead_bytes_ = 0;  // see CompileOptions
  std::size_t lead_bytes_ = 0;   // likewise
  LinkModel links_;
  bool are_links_measured_ = false;
  std::vector<engine::Trial> trials_;
  PeerMemory* const peer_memory_;  // the transport's, which the engine has; null where ranks share no memory
  AnswersInPlace* const answers_;  // likewise
  engine::VendorCalls vendor_;     // over the transport's, likewise
  BoundedCalls bounded_;           // likewise
  std::mutex leaving_;
  bool left_ = false;  // guarded by leaving_
  std::unique_ptr<engine::NewsDesk> news_;
  std::unique_ptr<engine::ControlPlane> control_;
  const std::shared_ptr<Engine> engine_;  // whoever waits for an operation keeps it, too
  std::optional<engine::Calls> calls_;
  std::optional<engine::Learning> learning_;
  std::uint32_t splits_ = 0;
  engine::RequestKey claimed_for_;  // what the engine's claimed operation is set up for; with the claim only
  std::array<std::byte, collective_lanes> barrier_memory_{};  // a barrier is an all_reduce of one byte, one a lane
};

std::shared_ptr<engine::Siblings> make_siblings() { return std::make_shared<engine::Siblings>(); }

// ---- Meeting.

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// What a process has that was forked off is lost with it: the parent has the threads, the memory and the others.
Communicator::~Communicator() {
  if (impl_ && impl_->engine_->is_forked()) static_cast<void>(impl_.release());
}
void Communicator::leave() {
  impl_->engine_->require_no_fork();
  if (const auto mismatch = impl_->leave()) throw *mismatch;
}

namespace {

void demand_world(Rank rank, Rank world) {
  if (world < 1 || rank < 0 || rank >= world)
    throw Error(ErrorKind::usage,
                fmt::format("rank {} of a world of {} is impossible; ranks are 0 to world - 1", rank, world));
}

void demand_settings(const CommunicatorOptions& options, Rank world) {
  if (options.timeout.count() < 0)
    throw Error(ErrorKind::usage, fmt::format("the communicator's timeout of {} ms is over before it begins; leave it "
                                              "out, or give one above 0",
                                              options.timeout.count()));
  if (!(options.link_bytes_per_second >= 0))
    throw Error(ErrorKind::usage, fmt::format("{} bytes a second are no rate of a link; give one above 0, or 0 for as "
                                              "fast as it goes",
                                              options.link_bytes_per_second));
  if (!options.world_ranks.empty() && options.world_ranks.size() != static_cast<std::size_t>(world))
    throw Error(ErrorKind::usage, fmt::format("world_ranks has {} ranks for a world of {}; name each of them, or none",
                                              options.world_ranks.size(), world));
}

// `follows`: another rank's table, and not that of its own file. Also throws what is wrong with the settings, while
// the others can still be told why this rank does not come.
Guidance guidance_of(const CommunicatorOptions& options, Rank world, bool follows) {
  demand_settings(options, world);
  engine::AlgorithmNumbers(world, 0).of(options.algorithm);
  Guidance guidance;
  if (!options.tuning.empty() && !follows)
    guidance.tuning = options.learn ? engine::read_to_complete(options.tuning) : TuningTable::read(options.tuning);
  if (!options.topology.empty())
    guidance.topology = std::make_shared<const Topology>(make_topology(options.topology, world));
  return guidance;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::connect(Store& store, Rank rank, Rank world,
                                                    const CommunicatorOptions& given) {
  demand_world(rank, world);
  CommunicatorOptions options = given;
  if (!options.siblings) options.siblings = make_siblings();
  options.join_timeout = bounded(options.join_timeout);
  const auto deadline = steady_clock::now() + options.join_timeout;
  const engine::Exchange exchange = engine::exchange_through(store, rank, world, options);
  const engine::Parting part = engine::parting_through(exchange);
  Guidance guidance;
  const WorldInfo info{.rank = rank, .world = world, .epoch = options.epoch};
  try {
    guidance = guidance_of(options, world, options.learn && rank != 0);
  } catch (const std::exception& why) {
    engine::decline(why, exchange, deadline, part);
    throw;
  }
  auto news = std::make_unique<engine::NewsDesk>();
  auto links = engine::meet(info, options, guidance.tuning, exchange, deadline, news->events(), part);
  guidance.tuning = std::move(links.tuning);
  auto impl = std::make_unique<Impl>(options, std::move(guidance), std::move(links), std::move(news));
  impl->agree_on_terms(nullptr, time_until(deadline));
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

void Communicator::decline(Store& store, Rank rank, Rank world, const std::exception& why,
                           const CommunicatorOptions& options) {
  demand_world(rank, world);
  const engine::Exchange exchange = engine::exchange_through(store, rank, world, options);
  engine::decline_silently(why, exchange, steady_clock::now() + bounded(options.join_timeout),
                           engine::parting_through(exchange));
}

std::unique_ptr<Communicator> Communicator::over(std::unique_ptr<Transport> transport,
                                                 const CommunicatorOptions& options) {
  if (!transport) throw Error(ErrorKind::usage, "Communicator::over got no transport; give it one, or use connect()");
  Guidance guidance = guidance_of(options, transport->world(), false);
  auto impl = std::make_unique<Impl>(options, std::move(guidance),
                                     engine::Links{.control = nullptr, .transport = std::move(transport)}, nullptr);
  return std::unique_ptr<Communicator>(new Communicator(std::move(impl)));
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  impl_->demand_control("split");
  const std::uint32_t number = impl_->splits_++;
  const std::vector<Rank> members = engine::members_of(*this, color, key);
  const engine::Exchange exchange = engine::exchange_over(*this, members);
  if (color < 0) {
    exchange({}, {});
    return nullptr;
  }
  return std::unique_ptr<Communicator>(
      new Communicator(impl_->part(members, exchange, fmt::format("color {} of split {}", color, number))));
}

std::unique_ptr<Communicator> Communicator::create_group(const std::vector<Rank>& members, std::uint64_t tag) {
  impl_->demand_control("create_group");
  std::set<Rank> known;
  for (const Rank member : members)
    if (member < 0 || member >= world() || !known.insert(member).second)
      throw Error(ErrorKind::usage, fmt::format("{} cannot be in a group twice, or of a world of {}; name ranks from 0 "
                                                "to {}, each once",
                                                rank_name(member), world(), world() - 1));
  if (!known.contains(rank()))
    throw Error(ErrorKind::usage, fmt::format("{} is not among the members of the group that it asks for; only they "
                                              "call create_group",
                                              rank_name(rank())));
  return std::unique_ptr<Communicator>(new Communicator(
      impl_->part(members, engine::exchange_between(*this, members, tag), fmt::format("group {}", tag))));
}

Rank Communicator::rank() const { return impl_->rank_; }
Rank Communicator::world() const { return impl_->world_; }
std::string Communicator::rank_name(Rank rank) const { return impl_->rank_name_(rank); }
std::vector<Rank> Communicator::world_ranks_of(const std::vector<Rank>& members) const {
  return ranvier::world_ranks_of(members, impl_->options_.world_ranks);
}
const CommunicatorOptions& Communicator::options() const { return impl_->options_; }
std::string_view Communicator::transport_name() const { return impl_->transport_name_; }
Traffic Communicator::traffic() const { return impl_->engine_->traffic().total(); }
double Communicator::tolerated_loss() const { return impl_->bounded_.tolerated(); }
LossCounts Communicator::losses() const { return impl_->bounded_.losses(); }
std::optional<PacketCounts> Communicator::packet_counts() const { return impl_->engine_->transport().packet_counts(); }
std::uint64_t Communicator::resync() const { return impl_->bounded_.resync(); }
void Communicator::realign(std::span<float> data) {
  all_reduce(data, {.op = ReduceOp::average});
  impl_->bounded_.realigned();
}
std::uint64_t Communicator::bytes_sent_to(Rank peer) const { return impl_->engine_->traffic().sent_to(peer); }
const LinkModel& Communicator::links() const { return impl_->links_; }
bool Communicator::are_links_measured() const { return impl_->are_links_measured_; }
TuningTable Communicator::tuning() const {
  TuningTable all;
  for (const Collective collective : all_collectives)
    if (!candidates(collective, world()).empty() && collective != Collective::neighbor_exchange)
      all.replace(impl_->learning_ ? impl_->learning_->corrected(collective, impl_->calls_->rows(collective))
                                   : impl_->calls_->rows(collective));
  return all;
}
void Communicator::follow(TuningTable table) {
  impl_->guidance_.tuning = std::move(table);
  impl_->prepare_calls(impl_->guidance_.topology);
  impl_->begin_to_learn();
}

std::shared_ptr<std::byte[]> Communicator::allocate(std::size_t bytes) {
  impl_->engine_->require_no_fork();
  if (impl_->peer_memory_ != nullptr) return impl_->peer_memory_->allocate(bytes);
  constexpr std::align_val_t page{4096};
  // The aligned operator new rounds sizes up, the largest ones to 0.
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max();
  void* const memory = bytes <= most ? ::operator new(std::max(bytes, std::size_t{1}), page, std::nothrow) : nullptr;
  if (memory == nullptr)
    throw Error(ErrorKind::config,
                fmt::format("{} has no memory for {} bytes; allow its process more, or allocate less",
                            rank_name(rank()), bytes),
                rank());
  std::memset(memory, 0, bytes);
  return {static_cast<std::byte*>(memory), [](std::byte* each) { ::operator delete(each, page); }};
}

// ---- Collectives.

void Communicator::run(const Request& request) {
  if (impl_->learning_) return impl_->learning_->run(request);
  impl_->run(request, impl_->timeout_of(request.timeout));
}

Work Communicator::start(const Request& request) {
  if (impl_->learning_) return impl_->learning_->start(request);
  return impl_->start(request, impl_->timeout_of(request.timeout));
}

std::uint32_t Communicator::count(Composite call) {
  impl_->engine_->check_alive();
  return impl_->engine_->count_call(engine::CallStamp::of({.collective = engine::as_collective(call)}));
}

// ---- Messages.

Work Communicator::start_send(ConstTypedSpan data, Rank to, std::uint64_t tag,
                              std::optional<std::chrono::milliseconds> timeout, CallLabel label) {
  impl_->demand_peer(to, "send");
  impl_->demand_memory(data, "send");
  return Work(impl_->engine_->start_send(data, to, tag, impl_->timeout_of(timeout), label));
}
Work Communicator::start_recv(TypedSpan data, Rank from_or_any, std::uint64_t tag,
                              std::optional<std::chrono::milliseconds> timeout, CallLabel label) {
  if (from_or_any != any_rank) impl_->demand_peer(from_or_any, "recv");
  impl_->demand_memory(data, "recv");
  return Work(impl_->engine_->start_recv(data, from_or_any, tag, false, impl_->timeout_of(timeout), label));
}
Work Communicator::start_recv_at_most(TypedSpan data, Rank from_or_any, std::uint64_t tag,
                                      std::optional<std::chrono::milliseconds> timeout) {
  if (from_or_any != any_rank) impl_->demand_peer(from_or_any, "recv");
  impl_->demand_memory(data, "recv");
  return Work(impl_->engine_->start_recv(data, from_or_any, tag, true, impl_->timeout_of(timeout)));
}
void Communicator::send(ConstTypedSpan data, Rank to, std::uint64_t tag) { start_send(data, to, tag).wait(); }
void Communicator::recv(TypedSpan data, Rank from, std::uint64_t tag) { start_recv(data, from, tag).wait(); }

void Communicator::check_alive() { impl_->engine_->check_alive(); }

void Communicator::abort(const std::string& reason) {
  impl_->engine_->abort(Error(ErrorKind::aborted, fmt::format("{} gave up: {}", rank_name(rank()), reason), rank()));
}

std::string Communicator::flight_record() const { return impl_->engine_->recorder().dump(); }

}  // namespace ranvier
