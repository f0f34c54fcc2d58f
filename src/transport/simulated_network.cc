#include "transport/simulated_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::simulated {
namespace {

enum Event : std::uint64_t { sends = 1, receives, releases, arrives, crashes, notices };

void append(std::vector<std::byte>& to, ConstBytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

double milliseconds(Time time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

Network::Network(Rank world, const SimulationOptions& options)
    : world_(world),
      options_(options),
      random_(options.seed),
      links_(index(world) * index(world) * lane_count),
      ranks_(index(world)) {}

std::size_t Network::try_send(Rank self, Rank to, Lane lane, ConstBytes head, ConstBytes body) {
  Link& link = links_[link_index(self, to, lane)];
  if (head.empty() && body.empty()) return 0;
  if (link.slices >= options_.buffered_slices) return 0;
  Message message;
  std::size_t accepted = std::min(body.size(), options_.slice_bytes);
  if (accepted > 0 && random_.happens(options_.cut)) {
    // A head may travel alone, but progress must be made.
    const std::size_t least = head.empty() ? 1 : 0;
    const std::size_t part = least + random_.below(accepted - least + 1);
    message.slices = part == accepted ? 1 : 0;  // the parts of a slice take the room of one slice
    accepted = part;
  }
  link.slices += message.slices;
  message.id = next_id_++;
  append(message.bytes, head);
  if (options_.deferred_reads)
    message.unread = body.first(accepted);
  else
    append(message.bytes, body.first(accepted));
  const Time at = std::max(now_ + draw_delay(), link.last_arrival);
  link.last_arrival = at;
  arrivals_.push({at, message.id, link_index(self, to, lane)});
  link.under_way.push_back(std::move(message));
  ++moves_;
  note(sends, link_index(self, to, lane), head.size() + accepted);
  return head.size() + accepted;
}

bool Network::sent(Rank self, Rank to, Lane lane) {
  const Link& link = links_[link_index(self, to, lane)];
  return std::all_of(link.under_way.begin(), link.under_way.end(),
                     [](const Message& message) { return message.unread.empty(); });
}

ConstBytes Network::try_recv(Rank self, Rank from, Lane lane, Bytes into) {
  Link& link = links_[link_index(from, self, lane)];
  if (link.arrived.empty()) return {};
  Message& front = link.arrived.front();
  // Whoever asks again without having used the view needs more than it held, be it half a number: sets aside what there
  // is, in one piece, so that the link has room for the rest.
  if (link.view_kept && (front.slices > 0 || link.arrived.size() > 1)) {
    while (link.arrived.size() > 1) {
      const auto second = std::next(link.arrived.begin());
      append(front.bytes, second->bytes);
      front.slices += second->slices;
      link.arrived.erase(second);
    }
    link.slices -= std::exchange(front.slices, 0);
    wake(from);
    ++moves_;
  }
  ConstBytes view = ConstBytes(front.bytes).subspan(front.used);
  if (!link.view_kept && random_.happens(options_.cut)) view = view.first(1 + random_.below(view.size()));
  // Both answers are allowed wherever there is an `into`, so both are given.
  if (into.empty() || link.view_kept || random_.happens(0.5)) {
    link.view_kept = true;
    return view;
  }
  view = view.first(std::min(view.size(), into.size()));
  std::memcpy(into.data(), view.data(), view.size());
  release(self, from, lane, view.size());
  return into.first(view.size());
}

void Network::release(Rank self, Rank from, Lane lane, std::size_t bytes) {
  if (bytes == 0) return;
  Link& link = links_[link_index(from, self, lane)];
  Message& front = link.arrived.front();
  front.used += bytes;
  link.view_kept = false;
  if (front.used == front.bytes.size()) {
    link.slices -= front.slices;
    link.arrived.pop_front();
    wake(from);
  }
  ++moves_;
  note(releases, link_index(from, self, lane), bytes);
}

void Network::forget_callers_memory(Rank self) {
  for (std::size_t i = link_index(self, 0, 0); i < link_index(self, world_, 0); ++i)
    drop(links_[i], [](const Message& message) { return !message.unread.empty(); });
}

std::optional<Time> Network::next_event() {
  while (!arrivals_.empty() && is_stale(arrivals_.top())) arrivals_.pop();
  std::optional<Time> next;
  if (!arrivals_.empty()) next = arrivals_.top().at;
  if (crash_ahead()) {
    const Time at = crashed_ ? options_.crash->at + options_.crash->noticed_after : options_.crash->at;
    next = std::min(at, next.value_or(at));
  }
  return next;
}

void Network::advance_to(Time time) {
  now_ = std::max(now_, time);
  while (!arrivals_.empty() && arrivals_.top().at <= now_) {
    if (crash_ahead() && !crashed_ && options_.crash->at <= arrivals_.top().at) crash();
    const Arrival arrival = arrivals_.top();
    arrivals_.pop();
    if (!is_stale(arrival)) arrive(arrival);
  }
  if (!crash_ahead()) return;
  if (!crashed_ && options_.crash->at <= now_) crash();
  if (crashed_ && options_.crash->at + options_.crash->noticed_after <= now_) {
    noticed_ = true;
    note(notices, static_cast<std::uint64_t>(options_.crash->rank), 0);
    for (Rank rank = 0; rank < world_; ++rank) wake(rank);
  }
}

void Network::check_faults(Rank self) const {
  if (!crashed_) return;
  if (self == options_.crash->rank)
    throw Error(ErrorKind::aborted,
                fmt::format("rank {} crashed after {:.3f} ms of virtual time, as the simulation was told to", self,
                            milliseconds(options_.crash->at)),
                self);
  if (noticed_)
    throw Error(
        ErrorKind::peer_lost,
        fmt::format("rank {} was lost: it crashed after {:.3f} ms of virtual time; restart it, or go on without it",
                    options_.crash->rank, milliseconds(options_.crash->at)),
        options_.crash->rank);
}

bool Network::take_wake(Rank self) { return std::exchange(ranks_[index(self)].woken, false); }

std::string Network::unread() const {
  std::string list;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    std::size_t bytes = 0;
    for (const Message& message : links_[i].arrived) bytes += message.bytes.size() - message.used;
    if (bytes > 0)
      list += fmt::format("{}{} B from rank {} to rank {} on lane {}", list.empty() ? "" : ", ", bytes, sender_of(i),
                          receiver_of(i), i % lane_count);
  }
  return list;
}

void Network::note(std::uint64_t what, std::uint64_t who, std::uint64_t size) {
  // FNV-1a, a word at a time.
  for (const std::uint64_t word : {what, who, size, static_cast<std::uint64_t>(now_.count())})
    trace_ = (trace_ ^ word) * 0x100000001b3;
}

template <class Which>
void Network::drop(Link& link, Which which) {
  std::erase_if(link.under_way, [&](const Message& message) {
    if (which(message)) link.slices -= message.slices;
    return which(message);
  });
}

Time Network::draw_delay() {
  const auto spread = std::max<std::int64_t>((options_.most_delay - options_.least_delay).count(), 0);
  Time delay = options_.least_delay + Time(random_.below(static_cast<std::uint64_t>(spread) + 1));
  // Bounded, so that a loss of 1 does not keep anybody waiting for ever.
  for (int losses = 0; losses < 100 && random_.happens(options_.loss); ++losses) delay += options_.retransmit_after;
  return delay;
}

void Network::wake(Rank rank) { ranks_[index(rank)].woken = true; }

void Network::arrive(const Arrival& arrival) {
  Link& link = links_[arrival.link];
  Message message = std::move(link.under_way.front());
  link.under_way.pop_front();
  append(message.bytes, message.unread);
  message.unread = {};
  note(arrives, arrival.link, message.bytes.size());
  link.arrived.push_back(std::move(message));
  ++moves_;
  ++delivered_;
  wake(receiver_of(arrival.link));
  if (options_.deferred_reads) wake(sender_of(arrival.link));
}

// Messages are dropped from their link at once, and from the queue of arrivals when their time comes.
bool Network::is_stale(const Arrival& arrival) const {
  const auto& under_way = links_[arrival.link].under_way;
  return under_way.empty() || under_way.front().id != arrival.id;
}

void Network::crash() {
  crashed_ = true;
  const Rank rank = options_.crash->rank;
  note(crashes, static_cast<std::uint64_t>(rank), 0);
  for (std::size_t i = link_index(rank, 0, 0); i < link_index(rank, world_, 0); ++i)
    drop(links_[i], [](const Message&) { return true; });
  wake(rank);
  ++moves_;
}

// Whether something of the crash is still to happen; a rank that has left can no longer crash.
bool Network::crash_ahead() const {
  if (!options_.crash || noticed_) return false;
  return crashed_ || !ranks_[index(options_.crash->rank)].left;
}

}  // namespace ranvier::simulated
