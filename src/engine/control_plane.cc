#include "engine/control_plane.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "base/socket.h"
#include "base/thread.h"
#include "engine/control_news.h"
#include "engine/control_watch.h"
#include "transport/tcp_meeting.h"

namespace ranvier::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto longest_poll = std::chrono::hours(1);  // where heartbeats are years apart
// How long a rank that leaves waits for its neighbours to have read that, and to find out whether they agree about what
// it called; and how often a neighbour that has not come so far looks again.
constexpr auto goodbye_limit = milliseconds(500);
constexpr auto look_again = milliseconds(5);
// How long a rank that cannot even begin waits for them to have read why.
constexpr auto farewell_limit = milliseconds(200);

struct Link {
  Link(Rank rank, Rank world, transport::Channel&& connected)
      : neighbour(rank), channel(std::move(connected)), reader(world) {}

  Rank neighbour;
  transport::Channel channel;             // empty once the connection is closed
  std::optional<Clock::time_point> over;  // since when nothing more comes
  NewsReader reader;
  std::vector<std::byte> unsent;
};

// Signals are the program's: its handlers must not run on a thread that it does not know. Threads that begin meanwhile
// have the mask.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

class TcpControlPlane final : public ControlPlane {
 public:
  TcpControlPlane(const WorldInfo& info, const ControlOptions& options, ControlEvents events,
                  std::vector<transport::Channel> channels)
      : rank_(info.rank),
        world_(info.world),
        events_(std::move(events)),
        watch_(info.rank, info.world, options, Clock::now()),
        wake_(event_descriptor()) {
    const std::vector<Rank> neighbours = control_neighbours(info.rank, info.world);
    for (std::size_t i = 0; i < channels.size(); ++i)
      links_.emplace_back(neighbours[i], info.world, std::move(channels[i]));
    // The first heartbeat makes silence count; it must not depend on when the thread gets a core, since a rank that is
    // stopped before that would never be missed.
    for (Link& link : links_) post(link, {.type = NewsType::heartbeat, .origin = rank_});
    if (!links_.empty()) start(options.names.rank(rank_));
  }

  ~TcpControlPlane() override { stop(); }

  std::optional<Error> leave() override {
    stop();
    return at_the_end_ && at_the_end_->kind() == ErrorKind::mismatch ? at_the_end_ : std::nullopt;
  }

  void follow(std::shared_ptr<const CallHistory> calls) override {
    const std::lock_guard lock(mutex_);
    calls_ = calls;
    watch_.follow(std::move(calls));
  }

  void answer_by(Answering answering) override {
    const std::lock_guard lock(mutex_);
    watch_.answer_by(std::move(answering));
  }

  void look_for(Signs signs) override {
    const std::lock_guard lock(mutex_);
    signs_ = std::move(signs);
  }

  void ask(Rank whom, const Question& question) override {
    const std::lock_guard lock(mutex_);
    ControlWatch::Outcome outcome;
    watch_.ask(whom, question, outcome);
    pass_on(outcome);
    signal_event(wake_);  // for what the kernel did not take
  }

  std::optional<Finding> finding() override {
    const std::lock_guard lock(mutex_);
    return watch_.finding();
  }

  void abort(const Error& why) override {
    const std::lock_guard lock(mutex_);
    ControlWatch::Outcome outcome;
    watch_.give_up(why, outcome);
    pass_on(outcome);
    signal_event(wake_);  // for what the kernel did not take
  }

  void waits_in(const MessageHeader& call) override {
    const std::lock_guard lock(mutex_);
    if (waiting_ == call) return;
    waiting_ = call;
    signal_event(wake_);
  }

 private:
  // Without a thread this rank cannot begin: the others are told so, who would take it for dead.
  void start(const std::string& name) {
    try {
      const SignalsBlocked blocked;
      thread_ = start_thread("heartbeats", [this] { run(); });
    } catch (const Error& problem) {
      const Error why(problem.kind(), fmt::format("{} cannot begin: {}", name, problem.what()), rank_);
      abort(why);
      say_goodbye();
      throw why;
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    signal_event(wake_);
    if (thread_.joinable()) thread_.join();
  }

  void run() {
    auto next_beat = Clock::now();
    for (;;) {
      ControlWatch::Outcome outcome;
      bool stopping = false, beats = false;
      auto next_verdict = Clock::time_point::max();
      {
        const std::lock_guard lock(mutex_);
        receive_all(outcome);
        const auto now = Clock::now();
        for (const Rank rank : signs_ ? watch_.quiet(now) : std::vector<Rank>())
          if (const auto time = signs_(rank)) watch_.saw(rank, *time);
        watch_.tick(now, outcome);
        if (waiting_) watch_.waits_in(*waiting_, outcome);
        pass_on(outcome);
        close_ended(now);
        if (beats = now >= next_beat; beats) {
          for (Link& link : links_)
            if (link.unsent.empty() && !link.over) post(link, own(NewsType::heartbeat));
          next_beat = now + watch_.heartbeat_every();
        }
        stopping = stopping_;
        next_verdict = watch_.next_verdict();
      }
      if (outcome.fault) at_the_end_ = outcome.fault;
      if (stopping) return say_goodbye();
      tell(outcome);
      if (beats && events_.on_beat) events_.on_beat();
      wait_until(std::min(next_beat, next_verdict));
    }
  }

  // The other side closes its end when it has read the goodbye. Waiting for that keeps the kernel from throwing the
  // goodbye away, as it may when a socket with unread bytes is closed (RFC 2525, 2.17). Whoever has been given up for
  // its silence will not read it.
  void say_goodbye() {
    const auto deadline = Clock::now() + goodbye_limit;
    {
      const std::lock_guard lock(mutex_);
      has_left_ = true;
      for (Link& link : links_) post(link, own(NewsType::departure));
    }
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        bool open = false;
        for (Link& link : links_) {
          flush(link);
          if (link.channel && all_sent(link)) link.channel.end_sending();
          ControlWatch::Outcome last;
          receive(link, last);
          if (last.fault) at_the_end_ = last.fault;
          if (link.over || watch_.is_lost(link.neighbour)) link.channel.close();
          open |= static_cast<bool>(link.channel);
        }
        if (!open || Clock::now() >= deadline) return;
      }
      wait_until(deadline);
    }
  }

  News own(NewsType type) const {
    News news{.type = type, .origin = rank_};
    if (calls_) news.claim = calls_->claim();
    return news;
  }

  // Whoever has left waits for that. It is let wait while it may have to be told that the ranks disagree.
  void close_ended(Clock::time_point now) {
    for (Link& link : links_)
      if (link.over && (!watch_.is_ahead(link.neighbour) || now >= *link.over + goodbye_limit)) link.channel.close();
  }

  void tell(const ControlWatch::Outcome& outcome) const {
    for (const std::string& line : outcome.log) std::fprintf(stderr, "ranvier: %s\n", line.c_str());
    // First: whoever tells of a fault leaves next, and what is under way is to fail by what has happened.
    if (outcome.fault && events_.on_fault) events_.on_fault(*outcome.fault);
    for (const Rank rank : outcome.departures)
      if (events_.on_departure) events_.on_departure(rank);
  }

  void receive_all(ControlWatch::Outcome& outcome) {
    for (Link& link : links_) receive(link, outcome);
  }

  void receive(Link& link, ControlWatch::Outcome& outcome) {
    while (link.channel && !link.over) {
      const Bytes space = link.reader.space();
      const ssize_t got = link.channel.recv(space);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) {
        const auto* const tls = link.channel.tls();
        // Behind the goodbye whoever closes his end has read it; nobody's death is news then, and what ranks disagree
        // about, which may still come from another, is.
        if (!has_left_) watch_.ended(link.neighbour, outcome, got < 0 && tls != nullptr ? tls->problem() : "");
        link.over = Clock::now();
        if (got < 0) link.channel.close();
        return;
      }
      link.reader.filled(static_cast<std::size_t>(got));
      while (const auto news = link.reader.next()) watch_.heard(link.neighbour, *news, Clock::now(), outcome);
      if (link.reader.garbage()) {
        watch_.garbled(link.neighbour, outcome);
        link.channel.close();
      }
    }
  }

  void pass_on(const ControlWatch::Outcome& outcome) {
    for (const News& news : outcome.pass_on)
      for (Link& link : links_) post(link, news);
    for (const News& news : outcome.send) {
      const Rank next = next_control_hop(rank_, news.culprit, world_);
      for (Link& link : links_)
        if (link.neighbour == next) post(link, news);
    }
  }

  // What a neighbour must be told waits in `unsent` if the kernel is full; it is little: one fault, a departure a rank.
  void post(Link& link, const News& news) {
    if (!link.channel) return;
    append_frame(link.unsent, news);
    flush(link);
  }

  static bool all_sent(const Link& link) { return link.unsent.empty() && link.channel.flushed(); }

  void flush(Link& link) {
    if (!link.channel || all_sent(link)) return;
    link.channel.flush();
    if (link.unsent.empty()) return;
    const ssize_t taken = link.channel.send({}, link.unsent);
    if (taken > 0) link.unsent.erase(link.unsent.begin(), link.unsent.begin() + taken);
    // A broken connection shows at the next receive, after the last news that came over it.
    if (taken < 0 && !transport::is_transient(errno)) link.unsent.clear();
  }

  void wait_until(Clock::time_point until) {
    polled_.clear();
    polled_.push_back({wake_.get(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      for (Link& link : links_) {
        if (link.channel && link.over) until = std::min(until, Clock::now() + look_again);
        if (!link.channel || link.over) continue;
        const int events = all_sent(link) ? POLLIN : POLLIN | POLLOUT;
        polled_.push_back({link.channel.socket().get(), static_cast<short>(events), 0});
      }
    }
    const auto limit = std::chrono::ceil<milliseconds>(until - Clock::now());
    poll(polled_.data(), polled_.size(),
         static_cast<int>(std::clamp<milliseconds>(limit, milliseconds(0), longest_poll).count()));
    if (polled_.front().revents != 0) clear_event(wake_);
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) flush(link);
  }

  const Rank rank_;
  const Rank world_;
  const ControlEvents events_;
  std::mutex mutex_;  // guards watch_, signs_, links_, waiting_, stopping_, has_left_ and calls_
  ControlWatch watch_;
  Signs signs_;
  std::list<Link> links_;
  std::optional<MessageHeader> waiting_;  // for the control thread to tell
  bool stopping_ = false;
  bool has_left_ = false;                     // has said goodbye
  std::shared_ptr<const CallHistory> calls_;  // of this rank; null until they are followed
  std::optional<Error> at_the_end_;           // the fault, told or too late for that; the control thread's
  Fd wake_;
  std::vector<pollfd> polled_;  // control thread only
  std::thread thread_;
};

// Whoever is connected with this rank already, which will not come to have a control plane. Waits a moment for them to
// close their ends: see TcpControlPlane::say_goodbye.
void tell_why(Rank rank, const Error& why, std::span<transport::Channel> standing) {
  std::vector<std::byte> frame;
  append_frame(
      frame,
      {.type = NewsType::fault, .origin = rank, .kind = why.kind(), .culprit = why.culprit(), .text = why.what()});
  for (transport::Channel& channel : standing) {
    if (!channel) continue;
    channel.send({}, frame);
    channel.flush();
    channel.end_sending();
  }
  for (const auto deadline = Clock::now() + farewell_limit; Clock::now() < deadline; usleep(1000)) {
    bool open = false;
    for (transport::Channel& channel : standing) {
      std::array<std::byte, 256> ignored;
      ssize_t got = channel ? 1 : 0;
      while (got > 0) got = channel.recv(ignored);
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) channel.close();
      open |= static_cast<bool>(channel);
    }
    if (!open) return;
  }
}

class TcpControlEndpoint final : public ControlEndpoint {
 public:
  TcpControlEndpoint(const WorldInfo& info, const ControlOptions& options, std::shared_ptr<transport::TcpDoor> door)
      : info_(info),
        options_(options),
        meeting_(info, {.purpose = transport::TcpPurpose::control,
                        .interface_address = options.interface_address,
                        .buffers = {},
                        .security = options.security,
                        .calls = options.calls,
                        .names = options.names.rank,
                        .door = std::move(door),
                        .on_failure = [rank = info.rank](const Error& why, std::span<transport::Channel> standing) {
                          tell_why(rank, why, standing);
                        }}) {}

  std::string address() const override { return meeting_.address(); }

  std::unique_ptr<ControlPlane> connect(const std::vector<std::string>& addresses, Clock::time_point deadline,
                                        ControlEvents events) override {
    std::vector<transport::TcpLink> links;
    for (const Rank neighbour : control_neighbours(info_.rank, info_.world)) links.push_back({neighbour, 0});
    return std::make_unique<TcpControlPlane>(info_, options_, std::move(events),
                                             meeting_.connect(addresses, links, deadline));
  }

 private:
  const WorldInfo info_;
  const ControlOptions options_;
  transport::TcpMeeting meeting_;
};

}  // namespace

std::unique_ptr<ControlEndpoint> control_endpoint(const WorldInfo& info, const ControlOptions& options,
                                                  std::shared_ptr<transport::TcpDoor> door) {
  if (options.suspect_after <= milliseconds(0) || options.dead_after < options.suspect_after)
    throw Error(
        ErrorKind::config,
        fmt::format("suspect_after is {} ms and dead_after {} ms; both must be positive and the second no shorter",
                    options.suspect_after.count(), options.dead_after.count()));
  return std::make_unique<TcpControlEndpoint>(info, options, std::move(door));
}

}  // namespace ranvier::engine
