// The discrete events: messages leave and arrive, ranks reduce. What a rank does next is the executor's rule
// (src/engine/collective.cc): two lists, each in order, each waiting for the other where data demands it.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "plan/simulate/instance.h"
#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

// A moment of a thousand messages takes less than a millisecond.
constexpr std::size_t moments_between_questions = 16;
// What a message takes beside the shares of links, in crossings.
constexpr std::size_t crossings_of_a_message = 20;

class Simulation {
 public:
  Simulation(const Instance& instance, const SimulateOptions& options)
      : instance_(instance),
        options_(options),
        ranks_(instance.programs.size()),
        channels_(instance.channels.size()),
        network_(speeds(instance), routes(instance), senders(instance, options)) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].sent.resize(instance.programs[rank].sends.size());
      for (std::size_t i = 0; i < instance.programs[rank].sends.size(); ++i)
        channels_[instance.send_channels[rank][i]].sender = rank;
      for (std::size_t i = 0; i < instance.programs[rank].receives.size(); ++i)
        if (instance.programs[rank].receives[i].peer >= 0)
          channels_[instance.receive_channels[rank][i]].receiver = rank;
    }
  }

  SimulatedRun run() {
    if (options_.crash) at(options_.crash->at_ns, What::crash, static_cast<std::size_t>(options_.crash->rank));
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) at(instance_.starts_ns[rank], What::start, rank);
    std::vector<std::uint32_t> left;
    for (std::size_t moment = 0; network_.flows() || !events_.empty(); ++moment) {
      if (moment % moments_between_questions == 0) end_if_enough(options_);
      const double event = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at - now_;
      const double flow = network_.flows() ? network_.until_next() : std::numeric_limits<double>::infinity();
      const double passes = std::max(0.0, std::min(event, flow));
      left.clear();
      network_.advance(passes, left);
      now_ += passes;
      for (const auto channel : left) leave(channel);
      // Everything of this moment before anybody goes on: shares are then found once.
      while (!events_.empty() && events_.top().at <= now_ * (1 + 1e-12)) {
        const Event each = events_.top();
        events_.pop();
        happen(each);
      }
      for (const auto rank : woken_) proceed(rank);
      woken_.clear();
    }
    if (!options_.crash) check_finished();
    return result();
  }

 private:
  struct RankState {
    std::size_t next_send = 0;
    std::size_t sends_done = 0;  // in order
    std::size_t next_receive = 0;
    bool reduces = false;
    bool lost = false;
    double moved_at = 0;
    std::vector<bool> sent;
  };
  struct Channel {
    std::size_t sender = 0;
    std::size_t receiver = 0;
    std::vector<std::size_t> queue;  // sends of its rank, a few, the first of which flows
    std::size_t arrived = 0;         // messages that wait for their receive
    double begun = 0;
    std::size_t bytes = 0;  // of those in the queue
    double busy_since = 0;  // when it last was empty
    double passed = 0;      // bytes that have left since
  };
  enum class What : std::uint8_t { start, arrival, reduced, crash };
  struct Event {
    double at;
    std::uint64_t order;  // of equal times the first made comes first
    What what;
    std::size_t who;  // channel or rank
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  static std::vector<FluidLink> speeds(const Instance& instance) {
    std::vector<FluidLink> result;
    result.reserve(instance.links.size());
    for (const auto& link : instance.links) result.push_back(link.speed);
    return result;
  }
  static std::vector<std::vector<Crossing>> routes(const Instance& instance) {
    std::vector<std::vector<Crossing>> result;
    result.reserve(instance.channels.size());
    for (const auto& channel : instance.channels) result.push_back(channel.route);
    return result;
  }

  static std::vector<std::uint32_t> senders(const Instance& instance, const SimulateOptions& options) {
    std::vector<std::uint32_t> result;
    if (!options.in_turn) return result;
    result.reserve(instance.channels.size());
    for (const auto& channel : instance.channels) result.push_back(static_cast<std::uint32_t>(channel.from));
    return result;
  }

  const Instruction& send_of(const Channel& channel) const {
    return instance_.programs[channel.sender].sends[channel.queue.front()];
  }

  void at(double ns, What what, std::size_t who) { events_.push({now_ + ns, order_++, what, who}); }

  // All that a rank can do now.
  void proceed(std::size_t rank) {
    const Program& program = instance_.programs[rank];
    RankState& state = ranks_[rank];
    for (bool moved = !state.lost; moved;) {
      moved = false;
      while (state.next_send < program.sends.size() && program.sends[state.next_send].after <= state.next_receive) {
        const auto channel = instance_.send_channels[rank][state.next_send];
        if (channels_[channel].queue.size() >= options_.buffered_slices) break;
        if (channels_[channel].queue.empty()) {
          channels_[channel].busy_since = now_;
          channels_[channel].passed = 0;
        }
        channels_[channel].bytes += program.sends[state.next_send].bytes;
        channels_[channel].queue.push_back(state.next_send++);
        weigh(channel);
        if (channels_[channel].queue.size() == 1) begin(channel);
        moved = true;
      }
      while (!state.reduces && state.next_receive < program.receives.size() &&
             program.receives[state.next_receive].after <= state.sends_done) {
        const Instruction& receive = program.receives[state.next_receive];
        if (receive.peer >= 0) {
          Channel& channel = channels_[instance_.receive_channels[rank][state.next_receive]];
          if (channel.arrived == 0) break;
          --channel.arrived;
        }
        const bool combines = receive.action == Action::recv_reduce || receive.action == Action::reduce;
        if (combines && options_.reduce_bytes_per_ns > 0 && receive.bytes > 0) {
          state.reduces = true;
          at(static_cast<double>(receive.bytes) / options_.reduce_bytes_per_ns * instance_.slowdown[rank],
             What::reduced, rank);
          break;
        }
        ++state.next_receive;
        moved = true;
      }
      if (moved) state.moved_at = now_;
    }
  }

  void begin(std::uint32_t number) {
    Channel& channel = channels_[number];
    if (crashed_ && instance_.channels[number].crashes) return;
    channel.begun = now_;
    network_.start(number, static_cast<double>(send_of(channel).bytes));
  }

  // By what of it is in the receiver's queue: all that its line has brought there and has not left. Who joins has
  // nothing there but its first message, which so takes, among all that stands before it, as long as a FIFO queue of
  // that length has it wait; one that grows meanwhile makes it too long.
  void weigh(std::uint32_t number) {
    const Channel& channel = channels_[number];
    if (options_.window_bytes == 0 || channel.queue.empty()) return;
    auto queued = static_cast<double>(send_of(channel).bytes);
    const auto& route = instance_.channels[number].route;
    if (channel.passed > 0 && !route.empty()) {
      const FluidLink& line = instance_.links[route.front().link].speed;
      const double brought = line.bytes_per_ns * (now_ - channel.busy_since) + line.burst_bytes;
      queued += std::max(brought - channel.passed, 0.0);
    }
    const auto given = static_cast<double>(std::min(channel.bytes, options_.window_bytes));
    network_.weigh(number, std::max(std::min(queued, given), 1.0));
  }

  // The last byte has left: the memory may be reused, and after the way's latency the message is there.
  void leave(std::uint32_t number) {
    Channel& channel = channels_[number];
    RankState& state = ranks_[channel.sender];
    const double arrives = instance_.channels[number].latency_ns + options_.message_ns;
    if (options_.trace && (!instance_.folded_by || channel.sender == 0)) {
      const Instruction& send = send_of(channel);
      trace_.push_back({.from = instance_.channels[number].from,
                        .to = instance_.channels[number].to,
                        .round = send.round,
                        .begin_ns = channel.begun,
                        .end_ns = now_ + arrives,
                        .bytes = send.bytes});
    }
    state.moved_at = now_;
    state.sent[channel.queue.front()] = true;
    while (state.sends_done < state.sent.size() && state.sent[state.sends_done]) ++state.sends_done;
    channel.bytes -= send_of(channel).bytes;
    channel.passed += static_cast<double>(send_of(channel).bytes);
    channel.queue.erase(channel.queue.begin());
    weigh(number);
    ++messages_;
    at(arrives, What::arrival, number);
    woken_.push_back(channel.sender);
    if (!channel.queue.empty()) begin(number);
  }

  void happen(const Event& event) {
    switch (event.what) {
      case What::start:
        woken_.push_back(event.who);
        return;
      case What::arrival:
        ++channels_[event.who].arrived;
        woken_.push_back(channels_[event.who].receiver);
        return;
      case What::reduced:
        if (ranks_[event.who].lost) return;
        ranks_[event.who].reduces = false;
        ranks_[event.who].moved_at = now_;
        ++ranks_[event.who].next_receive;
        woken_.push_back(event.who);
        return;
      case What::crash:
        crashed_ = ranks_[event.who].lost = true;
        for (std::uint32_t channel = 0; channel < channels_.size(); ++channel)
          if (instance_.channels[channel].crashes) network_.stop(channel);
    }
  }

  bool is_finished(std::size_t rank) const {
    return ranks_[rank].sends_done == instance_.programs[rank].sends.size() &&
           ranks_[rank].next_receive == instance_.programs[rank].receives.size();
  }

  // Of a rank that is not finished: its next receive, unless it is a send that does not get away.
  Rank waits_for(std::size_t rank) const {
    const RankState& state = ranks_[rank];
    const Program& program = instance_.programs[rank];
    if (state.next_receive < program.receives.size() && program.receives[state.next_receive].after <= state.sends_done)
      return program.receives[state.next_receive].peer;
    return program.sends[state.sends_done].peer;
  }

  std::vector<RankEnd> ends() const {
    std::vector<RankEnd> result;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const bool finished = is_finished(rank);
      const bool waits = !finished && !ranks_[rank].lost;
      result.push_back({.ns = ranks_[rank].moved_at, .finished = finished, .waits_for = waits ? waits_for(rank) : -1});
    }
    return result;
  }

  void check_finished() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!is_finished(rank))
        throw Error(
            ErrorKind::internal,
            fmt::format("the simulated rank {} waits for ever, at send {} of {} and receive {} of {}; report the "
                        "schedule",
                        rank, ranks_[rank].sends_done, instance_.programs[rank].sends.size(), ranks_[rank].next_receive,
                        instance_.programs[rank].receives.size()));
  }

  SimulatedRun result() {
    std::vector<RankEnd> far;
    if (options_.crash) {
      far = ends();
      now_ = std::ranges::max_element(far, {}, &RankEnd::ns)->ns;
    }
    SimulatedRun run{.ns = now_,
                     .folded = instance_.folded_by.has_value(),
                     .messages = messages_,
                     .slice_bytes = options_.slice_bytes,
                     .work = crossings_of_a_message * messages_ + network_.shared_crossings()};
    for (std::size_t link = 0; link < instance_.links.size(); ++link)
      run.links.push_back(
          {.from = instance_.links[link].from,
           .to = instance_.links[link].to,
           .dimension = instance_.links[link].dimension,
           .utilisation = now_ > 0 ? network_.carried()[link] / (now_ * instance_.links[link].speed.bytes_per_ns) : 0});
    run.folded_by = instance_.folded_by;
    run.trace = std::move(trace_);
    run.ends = std::move(far);
    return run;
  }

  const Instance& instance_;
  const SimulateOptions& options_;
  std::vector<RankState> ranks_;
  std::vector<Channel> channels_;
  FluidNetwork network_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::size_t> woken_;
  std::vector<SimulatedMessage> trace_;
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::size_t messages_ = 0;
  bool crashed_ = false;
};

}  // namespace

void end_if_enough(const SimulateOptions& options) {
  if (options.enough && options.enough())
    throw Error(ErrorKind::timeout, "simulating was ended by who asked for it, after as long as it may take");
}

SimulatedRun run(const Instance& instance, const SimulateOptions& options) {
  return Simulation(instance, options).run();
}

bool have_the_same_links(const SimulatedRun& one, const SimulatedRun& other) {
  return std::ranges::equal(one.links, other.links, [](const SimulatedLink& a, const SimulatedLink& b) {
    return a.from == b.from && a.to == b.to;
  });
}

SimulatedRun on_the_line(const SimulatedRun& one, const SimulatedRun& longer, double far) {
  const auto at = [far](double a, double b) { return a + (b - a) * far; };
  SimulatedRun run = longer;
  run.ns = at(one.ns, longer.ns);
  run.messages = static_cast<std::size_t>(at(static_cast<double>(one.messages), static_cast<double>(longer.messages)));
  if (!have_the_same_links(one, longer)) return run;
  for (std::size_t i = 0; i < run.links.size(); ++i)
    run.links[i].utilisation = at(one.links[i].utilisation * one.ns, longer.links[i].utilisation * longer.ns) / run.ns;
  return run;
}

}  // namespace ranvier::plan
