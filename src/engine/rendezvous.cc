#include "engine/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <span>

#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::engine {
namespace {

using std::chrono::steady_clock;

constexpr std::string_view transports[] = {"auto", "shm", "tcp"};
constexpr std::string_view greeting = "ranvier 2";  // of this format of card

// What a rank tells the others about itself: fields with their lengths in front.
struct Card {
  std::string transport;  // as asked for
  std::string epoch;
  std::string tuning;             // a short sum of the table
  std::string control, tcp, shm;  // addresses; empty where there is none

  std::string text() const {
    std::string all;
    for (const std::string_view field :
         {greeting, std::string_view(transport), std::string_view(epoch), std::string_view(tuning),
          std::string_view(control), std::string_view(tcp), std::string_view(shm)})
      all += fmt::format("{}:{}", field.size(), field);
    return all;
  }

  static Card parse(std::string_view text, Rank rank) {
    std::array<std::string, 7> fields;
    for (std::string& field : fields) {
      std::size_t length = 0;
      const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<std::size_t>(rest - text.data());
      if (problem != std::errc{} || digits == text.size() || *rest != ':' || text.size() - digits - 1 < length)
        throw Error(ErrorKind::mismatch,
                    fmt::format("what rank {} left in the store is not ranvier's; is another program using it?", rank),
                    rank);
      field = text.substr(digits + 1, length);
      text.remove_prefix(digits + 1 + length);
    }
    if (fields[0] != greeting)
      throw Error(
          ErrorKind::mismatch,
          fmt::format("rank {} runs another version of ranvier ('{}', this is '{}'); install the same everywhere", rank,
                      fields[0], greeting),
          rank);
    return {fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]};
  }
};

std::vector<std::string> column(const std::vector<Card>& cards, std::string Card::*field) {
  std::vector<std::string> values;
  for (const Card& card : cards) values.push_back(card.*field);
  return values;
}

// Whether all cards agree with the first on `field`; throws naming the first two that do not.
void demand_same(const std::vector<Card>& cards, std::string Card::*field, std::string_view what) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    if (cards[rank].*field != cards[0].*field)
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank 0 has {} '{}' and rank {} has '{}'; give all ranks the same", what, cards[0].*field,
                              rank, cards[rank].*field),
                  static_cast<Rank>(rank));
}

}  // namespace

Links meet(const WorldInfo& info, const CommunicatorOptions& options, const TuningTable& tuning,
           const Exchange& exchange, steady_clock::time_point deadline, ControlEvents events) {
  if (std::find(std::begin(transports), std::end(transports), options.transport) == std::end(transports))
    throw Error(ErrorKind::usage, unknown_name("transport", options.transport, transports));

  const auto control = control_endpoint(info, {.suspect_after = options.suspect_after,
                                               .dead_after = options.dead_after,
                                               .interface_address = options.interface_address});
  const bool may_shm = options.transport != "tcp";
  const bool may_tcp = options.transport != "shm";
  const auto shm = may_shm ? shm_endpoint(info) : nullptr;
  const auto tcp = may_tcp ? tcp_endpoint(info, {.interface_address = options.interface_address}) : nullptr;

  const Card mine{
      .transport = options.transport,
      .epoch = std::to_string(info.epoch),
      .tuning = tuning.rows().empty() ? "none" : fmt::format("{:x}", std::hash<std::string>{}(tuning.text())),
      .control = control->address(),
      .tcp = tcp ? tcp->address() : "",
      .shm = shm ? shm->address() : ""};
  const std::vector<std::string> texts = exchange(mine.text());
  std::vector<Card> cards;
  for (Rank peer = 0; peer < info.world; ++peer)
    cards.push_back(Card::parse(texts[static_cast<std::size_t>(peer)], peer));
  demand_same(cards, &Card::transport, "transport");
  demand_same(cards, &Card::epoch, "epoch");
  demand_same(cards, &Card::tuning, "tuning table");

  Links links;
  links.control = control->connect(column(cards, &Card::control), deadline, std::move(events));
  const bool use_shm = may_shm && (!may_tcp || shm_reaches_all(column(cards, &Card::shm)));
  links.transport =
      use_shm ? shm->connect(column(cards, &Card::shm), deadline) : tcp->connect(column(cards, &Card::tcp), deadline);
  if (options.link_bytes_per_second > 0)
    links.transport = paced(std::move(links.transport), options.link_bytes_per_second);
  return links;
}

}  // namespace ranvier::engine
