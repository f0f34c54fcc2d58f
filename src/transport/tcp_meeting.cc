#include "transport/tcp_meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <span>

#include "base/host.h"
#include "ranvier/error.h"
#include "transport/published_address.h"
#include "transport/tcp_hello.h"
#include "transport/tcp_peer.h"

namespace ranvier::transport {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto connect_limit = milliseconds(500);  // of a first attempt on one address; doubles with each round
constexpr auto most_connect_limit = milliseconds(8000);
constexpr auto first_pause = milliseconds(10);  // after every address has failed once; doubles too
constexpr auto most_pause = milliseconds(500);
constexpr auto knock_after = milliseconds(200);   // at the door of a rank that should have dialled
constexpr auto longest_stay = milliseconds(400);  // of one who has found another gone: see `lost_`
constexpr std::size_t most_named = 8;             // ranks in one error message

enum class DialPhase { pausing, connecting, securing, greeting, done };

struct Dial : Conversation {
  std::size_t link = 0;
  bool knocks = false;  // only looks whether anybody listens: the other side is the one to dial
  DialPhase phase = DialPhase::pausing;
  std::size_t candidate = 0;
  int rounds = 0;  // how often every candidate was tried
};

// The state of one TcpMeeting::connect().
class Gathering {
 public:
  Gathering(const WorldInfo& info, const MeetingOptions& options, TcpDoor& door,
            const std::vector<TcpAddress>& addresses, const std::vector<TcpLink>& links)
      : info_(info),
        options_(options),
        door_(door),
        token_(addresses.front().token),
        links_(links),
        channels_(links.size()),
        open_(links.size()) {
    const std::string host = host_identity();
    for (std::size_t i = 0; i < links.size(); ++i) {
      TcpPeer& peer = peers_[links[i].peer];
      ++peer.open_links;
      const bool knocks = links[i].peer > info.rank;
      if (knocks && !nothing_watches()) continue;
      if (peer.candidates().empty())
        peer.listens_at(addresses[static_cast<std::size_t>(links[i].peer)].candidates(host));
      if (peer.candidates().empty()) continue;  // the deadline's error says so
      Dial& dial = dials_.emplace_back();
      dial.link = i;
      dial.knocks = knocks;
      if (knocks) dial.until = Clock::now() + knock_after;
    }
  }

  std::vector<Channel> run(Clock::time_point deadline) {
    try {
      gather(deadline);
    } catch (const Error& why) {
      if (options_.on_failure) options_.on_failure(why, channels_);
      throw;
    }
    for (const Channel& channel : channels_) {
      tune_connection(channel.socket());
      if (options_.calls) keep_alive(channel.socket());
    }
    return std::move(channels_);
  }

 private:
  // The control plane finds out who is lost, once it stands.
  bool nothing_watches() const { return options_.purpose == TcpPurpose::control; }

  void gather(Clock::time_point deadline) {
    const auto start = Clock::now();
    guests_.splice(guests_.end(), door_.waiting);
    while (open_ > 0) {
      const auto now = Clock::now();
      info_.check_peers();
      admit(now);
      for (Dial& dial : dials_) advance(dial, now);
      guests_.remove_if([&](Guest& guest) { return !keep(guest, now); });
      if (lost_ && (now >= lost_at_ + longest_stay || only_the_gone_are_missing())) throw Error(*lost_);
      if (open_ == 0) return;
      if (now >= deadline) throw_unreached(now - start);
      wait(now, deadline);
    }
  }
  bool only_the_gone_are_missing() const {
    return std::ranges::all_of(peers_,
                               [](const auto& each) { return each.second.open_links == 0 || each.second.is_gone; });
  }

  Hello hello(const TcpLink& link) const {
    Hello message;
    message.epoch = info_.epoch;
    message.token = token_;
    message.from = info_.rank;
    message.to = link.peer;
    message.purpose = options_.purpose;
    message.channel = link.channel;
    return message;
  }

  // Puts a connection that leaves the host inside TLS. Both of its ends see whether it does.
  void protect(Conversation& conversation, const SocketAddress& other_end, TlsRole role) {
    const SecurityOptions& security = options_.security;
    if (security.insecure || (other_end.is_loopback() && !security.encrypt_everywhere)) return;
    if (!door_.tls) door_.tls = std::make_shared<TlsContext>(security, token_, options_.calls ? "h2" : "");
    conversation.channel.begin_tls(door_.tls, role);
  }
  void begin(Conversation& conversation, const SocketAddress& other_end, TlsRole role) {
    protect(conversation, other_end, role);
    if (options_.calls) conversation.channel.begin_call(role == TlsRole::dialler ? CallRole::caller : CallRole::called);
  }

  void stand(std::size_t link, Channel&& channel) {
    channels_[link] = std::move(channel);
    --peers_[links_[link].peer].open_links;
    --open_;
  }

  void advance(Dial& dial, Clock::time_point now) {
    const TcpPeer& peer = peers_[links_[dial.link].peer];
    if (dial.knocks && channels_[dial.link]) {
      dial.channel = Channel();
      dial.phase = DialPhase::done;
    }
    const Hello greeting = hello(links_[dial.link]);
    switch (dial.phase) {
      case DialPhase::pausing:
        if (now < dial.until) return;
        dial.channel = Channel(start_connect(peer.candidates()[dial.candidate], options_.buffers));
        if (!dial.channel) return not_connected(dial, now, errno);
        dial.phase = DialPhase::connecting;
        dial.until = now + std::min(connect_limit * (1 << std::min(dial.rounds, 4)), most_connect_limit);
        return;
      case DialPhase::connecting:
        if (dial.ready != 0) {
          if (const int problem = connect_result(dial.channel.socket()); problem != 0)
            return not_connected(dial, now, problem);
          if (dial.knocks) {
            peers_[links_[dial.link].peer].listens = true;
            return give_up(dial, now, "it did not connect, but listens");
          }
          begin(dial, peer.candidates()[dial.candidate], TlsRole::dialler);
          dial.phase = DialPhase::securing;
          dial.until = now + options_.greeting_limit;
          return advance(dial, now);
        }
        if (now >= dial.until) give_up(dial, now, "no answer");
        return;
      case DialPhase::securing:
        if (dial.ready != 0) {
          const TlsProgress progress = dial.channel.secure();
          if (progress == TlsProgress::failed) return give_up(dial, now, dial.channel.tls()->problem());
          if (progress == TlsProgress::done) {
            if (!dial.say(greeting)) return give_up(dial, now, reason_to_close(dial, "it closed the connection"));
            dial.phase = DialPhase::greeting;
            return advance(dial, now);
          }
        }
        if (now >= dial.until) give_up(dial, now, "it accepted but did not answer the handshake");
        return;
      case DialPhase::greeting:
        if (dial.ready != 0) {
          const Arrival arrival = dial.listen();
          if (arrival == Arrival::closed)
            return give_up(dial, now, reason_to_close(dial, "it refused the handshake, as another job or epoch would"));
          if (arrival == Arrival::complete) {
            Hello confirm = greeting;
            confirm.step = HelloStep::confirm;
            if (dial.heard != greeting.answered_with(HelloStep::welcome) || !dial.say(confirm))
              return give_up(dial, now, "something else answered");
            dial.phase = DialPhase::done;
            return stand(dial.link, std::move(dial.channel));
          }
        }
        if (now >= dial.until) give_up(dial, now, "it accepted but did not answer the handshake");
        return;
      case DialPhase::done:
        return;
    }
  }

  // What the other side may have said in TLS before it closed the connection.
  static std::string reason_to_close(Dial& dial, const char* otherwise) {
    std::array<std::byte, 1> ignored;
    if (dial.channel.tls() == nullptr) return otherwise;
    dial.channel.recv(ignored);
    const std::string& problem = dial.channel.tls()->problem();
    return problem.empty() ? otherwise : problem;
  }

  void not_connected(Dial& dial, Clock::time_point now, int problem) {
    if (problem != ECONNREFUSED) return give_up(dial, now, std::strerror(problem));
    const Rank rank = links_[dial.link].peer;
    TcpPeer& peer = peers_[rank];
    if (peer.refused(dial.candidate, dial.knocks, now) && nothing_watches()) {
      peer.is_gone = true;
      if (!lost_) {
        lost_at_ = now;
        lost_.emplace(
            ErrorKind::peer_lost,
            fmt::format(
                "{} died or gave up before it was connected ({}); see its output for why{}", options_.names(rank),
                peer.tried(),
                std::ranges::all_of(peer.candidates(), &SocketAddress::is_loopback)
                    ? ", or give it an --interface (RANVIER_INTERFACE) that other hosts reach, if it has one of "
                      "its own"
                    : ""),
            rank);
      }
    }
    try_next(dial, now);
  }

  void give_up(Dial& dial, Clock::time_point now, std::string problem) {
    peers_[links_[dial.link].peer].failed(dial.candidate, std::move(problem));
    try_next(dial, now);
  }

  void try_next(Dial& dial, Clock::time_point now) {
    dial.channel = Channel();
    dial.ready = 0;
    dial.heard_bytes = 0;
    dial.phase = DialPhase::pausing;
    dial.until = now;
    dial.candidate = (dial.candidate + 1) % peers_[links_[dial.link].peer].candidates().size();
    if (dial.candidate != 0) return;
    dial.until = now + std::min(first_pause * (1 << std::min(dial.rounds, 6)), most_pause);
    ++dial.rounds;
  }

  void admit(Clock::time_point now) {
    for (std::size_t count = 0; count < most_strangers; ++count) {
      Fd socket = accept_next(door_.listener);
      if (!socket) return;
      if (guests_.size() >= links_.size() + most_strangers) {
        const auto oldest = std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.welcomed; });
        if (oldest != guests_.end()) guests_.erase(oldest);
      }
      const SocketAddress other_end = remote_address(socket);
      if (options_.own_host_only && !is_own(other_end)) continue;
      Guest& guest = guests_.emplace_back();
      guest.channel = Channel(std::move(socket));
      begin(guest, other_end, TlsRole::guest);
      guest.until = now + options_.greeting_limit;
      guest.ready = POLLIN;  // what it says may be here already
    }
  }

  bool keep(Guest& guest, Clock::time_point now) {
    // What it has said by now counts though its time is over: this process may have stood still meanwhile.
    const bool in_time = now < guest.until;
    if (guest.ready == 0 && in_time) return true;
    guest.ready = 0;
    if (!guest.secured) {
      const TlsProgress progress = guest.channel.secure();
      if (progress == TlsProgress::failed && !guest.channel.tls()->problem().empty())
        refused_ = guest.channel.tls()->problem();
      if (progress != TlsProgress::done) return progress == TlsProgress::pending && in_time;
      guest.secured = true;
    }
    if (guest.has_waited) {
      guest.has_waited = false;
    } else if (const Arrival arrival = guest.listen(); arrival != Arrival::complete) {
      return arrival == Arrival::pending && in_time;
    }
    if (!guest.welcomed && came_for_another_meeting(guest.heard)) {
      guest.has_waited = true;
      guest.ready = POLLIN;
      guest.until = Clock::time_point::max();
      door_.waiting.push_back(std::move(guest));
      return false;
    }

    const auto link = std::ranges::find_if(links_, [&](const TcpLink& candidate) {
      return candidate.peer > info_.rank && candidate.peer == guest.heard.from &&
             candidate.channel == guest.heard.channel;
    });
    if (link == links_.end()) return false;
    if (guest.heard.purpose != options_.purpose) return false;  // there is no room for it to wait
    const Hello own = hello(*link);
    const HelloStep due = guest.welcomed ? HelloStep::confirm : HelloStep::hello;
    if (guest.heard != own.answered_with(due)) {
      note_refusal(guest.heard, own.answered_with(due));
      return false;
    }
    const auto index = static_cast<std::size_t>(link - links_.begin());
    if (channels_[index]) return false;
    if (!guest.welcomed) {
      Hello welcome = own;
      welcome.step = HelloStep::welcome;
      guest.welcomed = true;
      guest.until = now + options_.greeting_limit;
      return guest.say(welcome);
    }
    stand(index, std::move(guest.channel));
    return false;
  }

  bool came_for_another_meeting(const Hello& heard) const {
    if (heard.purpose == options_.purpose || door_.waiting.size() >= links_.size() + most_strangers) return false;
    Hello expected = hello({.peer = heard.from, .channel = heard.channel});
    expected.purpose = heard.purpose;
    return heard == expected.answered_with(HelloStep::hello);
  }

  // Only for the error message: a guest proves nothing by what it says.
  void note_refusal(const Hello& heard, const Hello& expected) {
    if (heard.magic != expected.magic || heard.version != expected.version) return;
    peers_[heard.from].turned_away =
        heard.epoch != expected.epoch
            ? fmt::format("a connection in its name was of epoch {} and this is {}", heard.epoch, expected.epoch)
            : "a connection in its name came from another job";
  }

  void wait(Clock::time_point now, Clock::time_point deadline) {
    polled_.clear();
    auto until = std::min(deadline, now + WorldInfo::check_interval);
    polled_.push_back({door_.listener.get(), POLLIN, 0});
    const auto add = [&](Conversation& conversation, short events) {
      conversation.ready = 0;
      until = std::min(until, conversation.until);
      if (conversation.channel) polled_.push_back({conversation.channel.socket().get(), events, 0});
    };
    for (Dial& dial : dials_)
      if (dial.phase != DialPhase::done) add(dial, dial.phase == DialPhase::connecting ? POLLOUT : POLLIN);
    for (Guest& guest : guests_) add(guest, POLLIN);

    const auto limit = std::chrono::ceil<milliseconds>(until - now);
    if (poll(polled_.data(), polled_.size(), static_cast<int>(std::max(limit, milliseconds(0)).count())) <= 0) return;
    std::size_t next = 1;
    for (Dial& dial : dials_)
      if (dial.channel) dial.ready = polled_[next++].revents;
    for (Guest& guest : guests_) guest.ready = polled_[next++].revents;
  }

  [[noreturn]] void throw_unreached(Clock::duration waited) const {
    std::vector<std::string> missing;
    std::size_t count = 0;
    Rank culprit = -1;
    for (const auto& [rank, peer] : peers_) {
      if (peer.open_links == 0) continue;
      culprit = count == 0 ? rank : -1;
      if (++count <= most_named) missing.push_back(fmt::format("{} ({})", options_.names(rank), reason(rank, peer)));
    }
    if (count > most_named) missing.push_back(fmt::format("{} more", count - most_named));
    throw Error(ErrorKind::unreachable,
                fmt::format("{} has no {} connection to {} after {:.1f} s; check that they run and that no firewall "
                            "stands between{}",
                            options_.names(info_.rank), what_it_makes(), fmt::join(missing, ", "),
                            std::chrono::duration<double>(waited).count(),
                            refused_.empty() ? "" : "; somebody came and was refused: " + refused_),
                culprit);
  }

  std::string_view what_it_makes() const {
    if (options_.purpose == TcpPurpose::control) return "control";
    return options_.calls ? "grpc" : "tcp";
  }

  std::string reason(Rank rank, const TcpPeer& peer) const {
    if (rank > info_.rank && !peer.turned_away.empty()) return peer.turned_away;
    if (rank > info_.rank) return peer.listens ? "it did not connect, but listens" : "it did not connect";
    return peer.candidates().empty() ? "it has no address outside its own host" : peer.tried();
  }

  const WorldInfo& info_;
  const MeetingOptions& options_;
  TcpDoor& door_;
  const Token token_;
  std::string refused_;  // why the last guest was that did not prove who it is; for the error alone
  const std::vector<TcpLink>& links_;
  std::vector<Channel> channels_;
  std::size_t open_;  // links that do not stand yet
  std::map<Rank, TcpPeer> peers_;
  std::list<Dial> dials_;
  std::list<Guest> guests_;
  std::vector<pollfd> polled_;
  // That somebody is gone. Before this rank leaves for that, those who can still be connected are: it is from it that
  // they hear, and they would find it gone in its turn.
  std::optional<Error> lost_;
  Clock::time_point lost_at_{};
};

// Of calls, which are encrypted by certificates or not at all.
void refuse_other_hosts(const std::vector<TcpAddress>& addresses) {
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (!addresses[rank].host.empty() && addresses[rank].host == host_identity()) continue;
    for (const std::string& ip : addresses[rank].ips) {
      const auto address = parse_address(ip, 9);  // nothing is sent there
      if (!address || !is_own(*address))
        throw Error(ErrorKind::config,
                    fmt::format("rank {} is on another host ({}), and grpc encrypts by certificates only; name them in "
                                "--certificate, --private-key and --authority, say --insecure (RANVIER_INSECURE=1) if "
                                "the network may be trusted, or use tcp",
                                rank, ip),
                    static_cast<Rank>(rank));
    }
  }
}

}  // namespace

TcpMeeting::TcpMeeting(const WorldInfo& info, MeetingOptions options)
    : info_(info), options_(std::move(options)), door_(options_.door) {
  if (!door_) door_ = std::make_shared<TcpDoor>(options_.interface_address, options_.ports, options_.buffers);
  address_.token = door_->token;
  address_.port = local_address(door_->listener).port();
  address_.sockets = options_.sockets;
  set_place(address_, options_.interface_address);
}

std::vector<Channel> TcpMeeting::connect(const std::vector<std::string>& addresses, const std::vector<TcpLink>& links,
                                         Clock::time_point deadline) {
  const auto parsed = parse_addresses<TcpAddress>("tcp", info_.world, addresses);
  const auto other = std::ranges::find_if(
      parsed, [&](const TcpAddress& address) { return address.sockets != parsed.front().sockets; });
  if (other != parsed.end())
    throw Error(ErrorKind::mismatch,
                fmt::format("rank 0 wants {} sockets a link and rank {} wants {}; give all ranks the same --sockets or "
                            "RANVIER_SOCKETS",
                            parsed.front().sockets, other - parsed.begin(), other->sockets),
                static_cast<Rank>(other - parsed.begin()));
  if (options_.own_host_only) refuse_other_hosts(parsed);
  auto channels = Gathering(info_, options_, *door_, parsed, links).run(deadline);
  door_.reset();
  return channels;
}

}  // namespace ranvier::transport
