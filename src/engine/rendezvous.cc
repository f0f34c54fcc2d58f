#include "engine/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>

#include "base/host.h"
#include "engine/card.h"
#include "ranvier/error.h"
#include "ranvier/timeouts.h"
#include "schedule/spelling.h"
#include "transport/paired.h"
#include "transport/tcp_door.h"
#include "transport/udp_meeting.h"

namespace ranvier::engine {
namespace {

using std::chrono::steady_clock;

std::vector<std::string> column(const std::vector<Card>& cards, std::string Card::*field) {
  std::vector<std::string> values;
  for (const Card& card : cards) values.push_back(card.*field);
  return values;
}

// By what the ends of a connection between hosts know each other.
std::string proof(const SecurityOptions& options) {
  if (options.insecure) return "insecure";
  std::string by = options.key_file.empty() ? "the key of the job" : "a key file";
  if (!options.certificate.empty()) by = "certificates";
  return options.encrypt_everywhere ? by + ", also within a host" : by;
}

// Throws what the first rank says that does not come.
void demand_all(const std::vector<Card>& cards, const RankNames& names) {
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (!cards[rank].refusal.empty())
      throw Error(ErrorKind::config,
                  fmt::format("{} cannot take part: {}", names(static_cast<Rank>(rank)), cards[rank].refusal),
                  static_cast<Rank>(rank));
}

// What all ranks give, which has to pass `check`. Throws where one does not come.
std::vector<Card> exchange_cards(const Card& mine, const Exchange& exchange, steady_clock::time_point deadline,
                                 const RankNames& names, const Parting& part,
                                 const std::function<void(const std::vector<Card>&)>& check) {
  const std::vector<std::string> texts = exchange(mine.text(), deadline);
  try {
    std::vector<Card> cards;
    for (const std::string& text : texts) cards.push_back(Card::parse(text, static_cast<Rank>(cards.size()), names));
    demand_all(cards, names);
    check(cards);
    return cards;
  } catch (const Error&) {
    if (part) part();
    throw;
  }
}

// Whether all cards agree with the first on `field`; throws naming the first two that do not.
void demand_same(const std::vector<Card>& cards, std::string Card::*field, std::string_view what,
                 const RankNames& names) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    if (cards[rank].*field != cards[0].*field)
      throw Error(ErrorKind::mismatch,
                  fmt::format("{} has {} '{}' and {} has '{}'; give all ranks the same", names(0), what,
                              cards[0].*field, names(static_cast<Rank>(rank)), cards[rank].*field),
                  static_cast<Rank>(rank));
}

// Whoever has another key or authority would be refused at each connection between hosts, without a word to it.
void demand_same_trust(const std::vector<Card>& cards, const SecurityOptions& security, const RankNames& names) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    if (cards[rank].fingerprint != cards[0].fingerprint)
      throw Error(ErrorKind::mismatch,
                  fmt::format("{} and {} {}", names(0), names(static_cast<Rank>(rank)),
                              security.key_file.empty()
                                  ? "trust different authorities; give all ranks the same authority's file"
                                  : "have different keys; give all ranks the same key file"),
                  static_cast<Rank>(rank));
}

// Who names other ranks would take what these send for what others do.
void demand_same_members(const std::vector<Card>& cards, const RankNames& names) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    if (cards[rank].members != cards[0].members)
      throw Error(ErrorKind::mismatch,
                  fmt::format("{} and {} came to groups of other ranks; name the same ranks of a group on all of them",
                              names(0), names(static_cast<Rank>(rank))),
                  static_cast<Rank>(rank));
}

std::unique_ptr<Endpoint> endpoint_between_hosts(std::string_view name, const WorldInfo& info,
                                                 const CommunicatorOptions& options,
                                                 const std::shared_ptr<transport::TcpDoor>& door) {
  const SecurityOptions& security = options.security;
  if (name == "mpi") return mpi_endpoint(info);
  if (name == "ucx")
    return ucx_endpoint(info, {.interface_address = options.interface_address, .ports = options.ports});
  if (name == "udp")
    return transport::udp_endpoint_at(
        door, info,
        {.interface_address = options.interface_address,
         .ports = options.ports,
         .security = security,
         .unanswered_limit = std::max(UdpOptions{}.unanswered_limit, 2 * bounded(options.dead_after))});
  const TcpOptions tcp{
      .interface_address = options.interface_address, .sockets = options.tcp_sockets, .security = security};
  return name == "grpc" ? transport::grpc_endpoint_at(door, info, tcp) : transport::tcp_endpoint_at(door, info, tcp);
}

// Shared memory if it reaches all, the other transport if it reaches nobody, and else both.
std::unique_ptr<Transport> connect(const WorldInfo& info, const std::vector<Card>& cards, Endpoint* inside,
                                   Endpoint* between, steady_clock::time_point deadline) {
  const std::vector<std::string> shm = column(cards, &Card::inside);
  if (between == nullptr) return inside->connect(shm, deadline);
  const auto transport = [&] { return between->connect(column(cards, &Card::between), deadline); };
  if (inside == nullptr) return transport();
  const std::vector<std::string> hosts = shm_hosts(shm);
  const auto distinct = std::set<std::string>(hosts.begin(), hosts.end()).size();
  if (distinct == 1) return inside->connect(shm, deadline);
  if (distinct == hosts.size()) return transport();
  return transport::paired_transport(transport(), hosts, info, deadline);
}

// See Links.
Rank consecutive_ranks(const std::vector<std::string>& hosts) {
  const auto next = std::ranges::find_if(hosts, [&](const std::string& host) { return host != hosts.front(); });
  const auto size = static_cast<std::size_t>(next - hosts.begin());
  if (size == 1 || size == hosts.size()) return 0;
  std::set<std::string_view> before;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (rank % size == 0 ? !before.insert(hosts[rank]).second : hosts[rank] != hosts[rank - 1]) return 0;
  return static_cast<Rank>(size);
}

// Whom the control plane has lost while the other links are made. Who is lost by then makes none of them.
class Losses {
 public:
  // `events`, and this is told as well.
  static ControlEvents told_with(const std::shared_ptr<Losses>& losses, ControlEvents events) {
    return {
        .on_fault =
            [losses, inner = std::move(events.on_fault)](const Error& why) {
              losses->note(why);
              if (inner) inner(why);
            },
        .on_departure =
            [losses, inner = std::move(events.on_departure)](Rank rank) {
              losses->note({ErrorKind::unreachable,
                            fmt::format("{} left before all links stood; it says why", losses->names_(rank)), rank});
              if (inner) inner(rank);
            },
        .on_beat = std::move(events.on_beat)};
  }
  explicit Losses(RankNames names) : names_(std::move(names)) {}

  void check() {
    const std::lock_guard lock(mutex_);
    if (first_) throw *first_;
  }

 private:
  void note(const Error& why) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = why;
  }

  const RankNames names_;
  std::mutex mutex_;
  std::optional<Error> first_;
};

// Where the transport trusts its fabric: nobody is to believe in a protection that is not there.
void check_fabric(const TransportChoice& choice, const WorldInfo& info, const CommunicatorOptions& options) {
  if (choice.between != "mpi" && choice.between != "ucx") return;
  const SecurityOptions& security = options.security;
  if (security.encrypt_everywhere)
    throw Error(ErrorKind::config,
                fmt::format("{} trusts its fabric and encrypts nothing; leave out --encrypt-everywhere, or use tcp",
                            choice.between));
  const bool proves = !security.key_file.empty() || !security.certificate.empty();
  if (proves && info.rank == 0 && options.world_ranks.empty())
    std::fprintf(stderr, "ranvier: %s protect%s the control plane only; %s trusts its fabric and encrypts nothing\n",
                 security.key_file.empty() ? "certificates" : "the key", security.key_file.empty() ? "" : "s",
                 choice.between.c_str());
}

// Of this rank, listening.
struct Endpoints {
  std::unique_ptr<ControlEndpoint> control;
  std::unique_ptr<Endpoint> inside, between;  // of hosts; null where the transport has none
};

// MPI starts when all processes start it, and nobody comes back from that alone: first all have to want it. Groups are
// of ranks whose world has started it.
bool starts_with_all(const TransportChoice& choice, const CommunicatorOptions& options) {
  return choice.between == "mpi" && options.world_ranks.empty();
}

Endpoints open_endpoints(const TransportChoice& choice, const WorldInfo& info, const CommunicatorOptions& options) {
  check_security(options.security);
  if (choice.between == "grpc") check_certificate_names(options.security, name_in_certificates);
  check_fabric(choice, info, options);
  const auto door =
      std::make_shared<transport::TcpDoor>(options.interface_address, options.ports, transport::tcp_buffers);
  Endpoints own;
  own.control = control_endpoint(info,
                                 {.suspect_after = options.suspect_after,
                                  .dead_after = options.dead_after,
                                  .interface_address = options.interface_address,
                                  .security = options.security,
                                  .names = {.rank = RankNames(options.world_ranks), .element = options.element_name},
                                  .calls = choice.between == "grpc"},
                                 door);
  if (!choice.inside.empty()) own.inside = shm_endpoint(info, options.node);
  if (!choice.between.empty() && !starts_with_all(choice, options))
    own.between = endpoint_between_hosts(choice.between, info, options, door);
  return own;
}

// What all ranks have to have alike, by the words that errors have for it.
struct Agreed {
  std::string Card::*field;
  std::string_view what;
};
constexpr std::array agreed{Agreed{&Card::purpose, "purpose"},    Agreed{&Card::transport, "transport"},
                            Agreed{&Card::epoch, "epoch"},        Agreed{&Card::algorithm, "algorithm"},
                            Agreed{&Card::learn, "learn"},        Agreed{&Card::tuning, "tuning table"},
                            Agreed{&Card::measure, "measure"},    Agreed{&Card::topology, "topology"},
                            Agreed{&Card::silence, "dead-after"}, Agreed{&Card::security, "security"}};

// Who has to wait longer for those whom it is to tell says meanwhile what it is to tell them.
constexpr std::chrono::seconds impatience(5);
// For as long a rank that knows why nobody meets stays until all do.
constexpr std::chrono::seconds longest_parting(2);

}  // namespace

Parting parting_through(const Exchange& exchange) {
  return [&exchange] {
    try {
      exchange({}, steady_clock::now() + longest_parting);
    } catch (const std::exception&) {  // the store has gone, or who has to come does not know of this
    }
  };
}

void decline_silently(const std::exception& why, const Exchange& exchange, steady_clock::time_point deadline,
                      const Parting& part) {
  try {
    exchange(Card{.refusal = why.what()}.text(), deadline);
    if (part) part();
  } catch (const std::exception&) {  // who is not there cannot be told
  }
}

void decline(const std::exception& why, const Exchange& exchange, steady_clock::time_point deadline,
             const Parting& part) {
  std::mutex mutex;
  std::condition_variable_any ends;
  const std::jthread says_so([&](const std::stop_token& told) {
    std::unique_lock lock(mutex);
    if (!ends.wait_for(lock, told, impatience, [&] { return told.stop_requested(); }))
      std::fprintf(stderr, "ranvier: %s; waits to tell the other ranks\n", why.what());
  });
  decline_silently(why, exchange, deadline, part);
}

Links meet(WorldInfo info, const CommunicatorOptions& options, const TuningTable& tuning, const Exchange& exchange,
           steady_clock::time_point deadline, ControlEvents events, const Parting& part) {
  const RankNames names(options.world_ranks);
  const auto losses = std::make_shared<Losses>(names);
  info.check_peers = [losses] { losses->check(); };
  TransportChoice choice;
  Endpoints own;
  std::string own_fingerprint;
  try {
    choice = parse_transport(options.transport);
    own = open_endpoints(choice, info, options);
    own_fingerprint = fingerprint(options.security);
  } catch (const std::exception& why) {
    decline(why, exchange, deadline, part);
    throw;
  }
  const std::string host = host_identity();
  // Tables that runs complete differ between hosts as soon as one of them has another run.
  const bool follow_first = options.learn;
  const Card mine{
      .purpose = options.purpose,
      .transport = options.transport,
      .epoch = std::to_string(info.epoch),
      .members = fmt::format("{:x}", names.number_of_all()),
      .algorithm = one_spelling(options.algorithm),
      .tuning = follow_first            ? ""
                : tuning.rows().empty() ? "none"
                                        : fmt::format("{:x}", std::hash<std::string>{}(tuning.text())),
      .table = follow_first && info.rank == 0 ? tuning.text() : "",
      .measure = options.measure ? "yes" : "no",
      .learn = options.learn ? "yes" : "no",
      .topology = options.topology.empty() ? "none" : options.topology,
      .security = proof(options.security),
      .fingerprint = own_fingerprint,
      .silence = fmt::format("{} ms, suspect after {} ms", options.dead_after.count(), options.suspect_after.count()),
      .host = fmt::format("{} {}", host, options.node),
      .control = own.control->address(),
      .inside = own.inside ? own.inside->address() : "",
      .between = own.between ? own.between->address() : ""};
  std::vector<Card> cards = exchange_cards(mine, exchange, deadline, names, part, [&](const std::vector<Card>& all) {
    for (const auto& [field, what] : agreed) demand_same(all, field, what, names);
    demand_same_trust(all, options.security, names);
    demand_same_members(all, names);
  });
  if (starts_with_all(choice, options)) {
    try {
      own.between = endpoint_between_hosts(choice.between, info, options, nullptr);
    } catch (const std::exception& why) {
      decline(why, exchange, deadline, part);
      throw;
    }
    const auto addresses =
        exchange_cards({.between = own.between->address()}, exchange, deadline, names, part, [](const auto&) {});
    for (std::size_t rank = 0; rank < cards.size(); ++rank) cards[rank].between = addresses[rank].between;
  }

  deadline = std::max(deadline, steady_clock::now() + least_to_connect);
  Links links;
  links.tuning = follow_first ? TuningTable::parse(cards.front().table, "the tuning table of " + names(0)) : tuning;
  links.control =
      own.control->connect(column(cards, &Card::control), deadline, Losses::told_with(losses, std::move(events)));
  try {
    links.transport = connect(info, cards, own.inside.get(), own.between.get(), deadline);
  } catch (const Error& why) {
    links.control->abort(why);  // or those who wait for this rank would learn no more than that it has left
    throw;
  }
  if (own.inside && own.between) links.ranks_per_node = consecutive_ranks(shm_hosts(column(cards, &Card::inside)));
  std::set<std::string_view> hosts;
  for (const Card& card : cards) hosts.insert(card.host);
  links.on_one_host = !host.empty() && hosts.size() == 1;
  links.hosts_apart = !host.empty() && hosts.size() == cards.size();
  if (options.link_bytes_per_second > 0)
    links.transport = paced(std::move(links.transport), options.link_bytes_per_second);
  return links;
}

}  // namespace ranvier::engine
