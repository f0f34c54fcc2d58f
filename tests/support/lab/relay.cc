// A network between namespaces that is as bad as one asks for: `lab_relay [FLAGS] NAMESPACE…`, as root. Each namespace
// gets a device eth0 whose packets this program reads and hands to the namespace that has their address, after a
// bottleneck with a rate and a queue, a delay and its jitter, and with seeded loss, reordering, duplicates, damaged
// bits and forged ones. For kernels without netem, and where one wants the same losses twice.
//
//     namespace 0 eth0 ──▶ ┌───────┐   for each receiver: [queue, rate] ──▶ [delay + jitter] ──▶ eth0 namespace 1
//                          │ relay │
//     namespace 2 eth0 ──▶ └───────┘   lost and repeated before the queue
//
// The address of namespace number n is 10.77.0.n+1. It says "ready" when the devices are there, then every second how
// many bytes of TCP and of UDP it has delivered in it, and runs until its stdin ends. One packet is one read and one
// write here, some 2 us: a few hundred thousand packets a second.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/socket.h"

namespace {

using ranvier::Fd;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

struct Settings {
  double bits_per_second = 0;  // 0: no bottleneck
  double queue_ms = 50;
  double delay_ms = 0;
  double jitter_ms = 0;
  double loss = 0;
  double reorder = 0;
  double duplicate = 0;
  double corrupt = 0;
  double forge_udp = 0;
  std::uint64_t forge_segment = 0;  // of TCP, by its number among those with data; 0: none
  std::uint64_t seed = 1;
  std::vector<std::string> namespaces;
};

constexpr std::size_t most_packet = 2048;
constexpr std::size_t protocol_offset = 9;           // in an IPv4 header
constexpr std::uint32_t first_address = 0x0a4d0001;  // 10.77.0.1

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}; it needs root and /dev/net/tun", what, std::strerror(errno)));
}

// A TUN device eth0 of that namespace; the thread stays in its own.
Fd open_device(const std::string& name) {
  const Fd own(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  const Fd other(open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!other || setns(other.get(), CLONE_NEWNET) != 0) fail("cannot enter the namespace " + name);
  Fd device(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ifreq request{};
  std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  const bool made = device && ioctl(device.get(), TUNSETIFF, &request) == 0;
  const int problem = errno;
  if (setns(own.get(), CLONE_NEWNET) != 0) fail("cannot leave the namespace " + name);
  errno = problem;
  if (!made) fail("cannot make eth0 in the namespace " + name);
  return device;
}

class Relay {
 public:
  explicit Relay(const Settings& settings) : settings_(settings), random_(settings.seed) {
    for (const std::string& name : settings.namespaces) devices_.push_back(open_device(name));
    free_at_.resize(devices_.size());
  }

  void run() {
    std::vector<pollfd> polled;
    for (const Fd& device : devices_) polled.push_back({device.get(), POLLIN, 0});
    polled.push_back({STDIN_FILENO, POLLIN, 0});
    for (;;) {
      const Time next = flights_.empty() ? Clock::now() + std::chrono::seconds(1) : flights_.top().at;
      const auto left = std::max(next - Clock::now(), Clock::duration(0));
      const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
      const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
      if (ppoll(polled.data(), polled.size(), &limit, nullptr) < 0 && errno != EINTR) fail("cannot poll");
      if (polled.back().revents != 0) return;
      for (std::size_t i = 0; i < devices_.size(); ++i)
        if (polled[i].revents != 0) read_from(i);
      deliver();
      tell();
    }
  }

 private:
  struct Flight {
    Time at;
    std::uint64_t number;  // of two for one moment the first comes first
    std::size_t to;
    std::vector<char> bytes;
    bool operator<(const Flight& other) const { return at != other.at ? at > other.at : number > other.number; }
  };

  static Clock::duration milliseconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(count));
  }
  bool happens(double share) { return share > 0 && std::uniform_real_distribution<>()(random_) < share; }

  void read_from(std::size_t from) {
    for (int count = 0; count < 64; ++count) {
      std::vector<char> bytes = buffer();
      const ssize_t got = read(devices_[from].get(), bytes.data(), bytes.size());
      if (got <= 0) return spare_.push_back(std::move(bytes));
      bytes.resize(static_cast<std::size_t>(got));
      if (happens(settings_.loss)) continue;
      if (happens(settings_.corrupt)) damage(bytes);
      if (is_udp(bytes) ? happens(settings_.forge_udp) : is_chosen(bytes)) forge(bytes);
      if (happens(settings_.duplicate)) take(bytes);
      take(std::move(bytes));
    }
  }

  // A bit behind the IP header, whose own checksum routers look at.
  void damage(std::vector<char>& bytes) {
    const auto header = static_cast<std::size_t>(bytes[0] & 0x0f) * 4;
    if (header >= bytes.size()) return;
    const std::size_t at = std::uniform_int_distribution<std::size_t>(header, bytes.size() - 1)(random_);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random_() % 8)));
  }

  static bool is_udp(const std::vector<char>& bytes) {
    return bytes.size() > protocol_offset && bytes[protocol_offset] == IPPROTO_UDP;
  }

  // Where what a TCP segment or UDP datagram holds begins; behind its end where it holds nothing.
  static std::size_t content_of(const std::vector<char>& bytes) {
    if (bytes.size() < 20) return bytes.size();
    const auto header = static_cast<std::size_t>(bytes[0] & 0x0f) * 4;
    if (is_udp(bytes)) return header + 8;
    return bytes.size() < header + 20 ? bytes.size()
                                      : header + static_cast<std::size_t>((bytes[header + 12] >> 4) & 0x0f) * 4;
  }
  bool is_chosen(const std::vector<char>& bytes) {
    return settings_.forge_segment > 0 && content_of(bytes) < bytes.size() && ++segments_ == settings_.forge_segment;
  }

  // A bit of the content, and the checksum that goes with it, as of somebody who means to: what the kernel does not
  // refuse (RFC 1624, equation 3).
  void forge(std::vector<char>& bytes) {
    const std::size_t begin = content_of(bytes);
    if (begin >= bytes.size()) return;
    const auto header = static_cast<std::size_t>(bytes[0] & 0x0f) * 4;
    const std::size_t sum_at = header + (is_udp(bytes) ? 6 : 16);
    const std::size_t at = std::uniform_int_distribution<std::size_t>(begin, bytes.size() - 1)(random_);
    const std::size_t word = at - (at - header) % 2;
    const auto word_at = [&](std::size_t from) {
      const auto byte = [&](std::size_t index) {
        return index < bytes.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[index])) : 0;
      };
      return byte(from) << 8 | byte(from + 1);
    };
    const std::uint32_t before = word_at(word), checksum = word_at(sum_at);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random_() % 8)));
    if (is_udp(bytes) && checksum == 0) return;  // it has none
    std::uint32_t sum = (~checksum & 0xffff) + (~before & 0xffff) + word_at(word);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    const std::uint32_t right = ~sum & 0xffff;
    bytes[sum_at] = static_cast<char>(right >> 8);
    bytes[sum_at + 1] = static_cast<char>(right & 0xff);
  }

  void take(std::vector<char> bytes) {
    std::uint32_t address = 0;
    if (bytes.size() < 20 || (bytes[0] >> 4) != 4) return;
    std::memcpy(&address, bytes.data() + 16, sizeof address);
    const std::size_t to = be32toh(address) - first_address;
    if (to >= devices_.size()) return;
    const Time now = Clock::now();
    Time at = now;
    if (settings_.bits_per_second > 0) {
      Time& free = free_at_[to];
      if (free - now > milliseconds(settings_.queue_ms)) return;
      free =
          std::max(free, now) + milliseconds(1e3 * 8 * static_cast<double>(bytes.size()) / settings_.bits_per_second);
      at = free;
    }
    at += milliseconds(settings_.delay_ms + settings_.jitter_ms * std::uniform_real_distribution<>()(random_));
    // What overtakes others takes half the way's time more, and at least as long as some packets.
    if (happens(settings_.reorder)) at += milliseconds(std::max(0.5 * settings_.delay_ms, 0.5));
    flights_.push({at, ++number_, to, std::move(bytes)});
  }

  void deliver() {
    const Time now = Clock::now();
    while (!flights_.empty() && flights_.top().at <= now) {
      auto& flight = const_cast<Flight&>(flights_.top());  // it is popped at once
      delivered_[flight.bytes[protocol_offset] == IPPROTO_UDP ? 1 : 0] += flight.bytes.size();
      // What the receiver's device has no room for is lost.
      [[maybe_unused]] const auto written = write(devices_[flight.to].get(), flight.bytes.data(), flight.bytes.size());
      spare_.push_back(std::move(flight.bytes));
      flights_.pop();
    }
  }

  void tell() {
    if (Clock::now() < told_at_ + std::chrono::seconds(1)) return;
    told_at_ += std::chrono::seconds(1);
    fmt::print("{} {}\n", delivered_[0], delivered_[1]);
    std::fflush(stdout);
    delivered_[0] = delivered_[1] = 0;
  }

  std::vector<char> buffer() {
    if (spare_.empty()) return std::vector<char>(most_packet);
    std::vector<char> bytes = std::move(spare_.back());
    spare_.pop_back();
    bytes.resize(most_packet);
    return bytes;
  }

  const Settings& settings_;
  std::mt19937_64 random_;
  std::vector<Fd> devices_;
  std::vector<Time> free_at_;  // by receiver: when its bottleneck has sent all that it holds
  std::priority_queue<Flight> flights_;
  std::vector<std::vector<char>> spare_;
  std::uint64_t number_ = 0;
  std::uint64_t segments_ = 0;  // of TCP, with data
  std::size_t delivered_[2]{};  // bytes of TCP and all else, and of UDP
  Time told_at_ = Clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Joins namespaces by a network that is as bad as asked for", "lab_relay");
  const auto share = CLI::Range(0.0, 1.0);
  app.add_option("--bits", settings.bits_per_second, "a second to each receiver; 0: as many as there are");
  app.add_option("--queue-ms", settings.queue_ms, "of packets that wait for the bottleneck");
  app.add_option("--delay-ms", settings.delay_ms, "one way");
  app.add_option("--jitter-ms", settings.jitter_ms, "up to so much more");
  app.add_option("--loss", settings.loss, "share of packets that vanish")->check(share);
  app.add_option("--reorder", settings.reorder, "share of packets that come late")->check(share);
  app.add_option("--duplicate", settings.duplicate, "share of packets that come twice")->check(share);
  app.add_option("--corrupt", settings.corrupt, "share of packets with a wrong bit")->check(share);
  app.add_option("--forge-udp", settings.forge_udp, "share of UDP's with a wrong bit that the checksum agrees with")
      ->check(share);
  app.add_option("--forge-segment", settings.forge_segment, "number of the one of TCP, with data, that has one");
  app.add_option("--seed", settings.seed, "of what happens to which packet");
  app.add_option("namespaces", settings.namespaces, "by number")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    prctl(PR_SET_TIMERSLACK, 1UL);
    Relay relay(settings);
    fmt::print("ready\n");
    std::fflush(stdout);
    relay.run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "lab_relay: {}\n", error.what());
    return 1;
  }
  return 0;
}
