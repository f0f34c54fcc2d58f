#include "support/cluster.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/store.h"
#include "ranvier/transport.h"
#include "support/sanitized.h"

namespace ranvier::support {
namespace {

using namespace std::chrono_literals;

// Who is in the job right now, and what went wrong first.
class Roll {
 public:
  explicit Roll(Rank world) : present_(static_cast<std::size_t>(world)), left_(world) {}

  // Runs a rank from its communicator's making to its end. `together`: nobody's body begins before all stand, so that
  // none learns of the failure of another while it still connects.
  void run(Rank rank, const std::function<std::unique_ptr<Communicator>()>& make, const RankBody& body, bool together) {
    try {
      const std::unique_ptr<Communicator> comm = make();
      const Presence presence(*this, rank, comm.get());
      if (together) wait_for_the_others();
      body(*comm);
    } catch (const Error& error) {
      const auto& record = error.flight_record();
      report(rank, fmt::format("{}{}{}", error.what(), record.empty() ? "" : "\n", record));
    } catch (const std::exception& error) {
      report(rank, error.what());
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
  }

  // Whether all ranks have ended within `limit`.
  bool wait_for_all(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return left_ == 0; });
  }

  void abort_all(const std::string& why) {
    const std::lock_guard lock(mutex_);
    for (Communicator* comm : present_)
      if (comm != nullptr) comm->abort(why);
  }

  std::string flight_records() {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (std::size_t rank = 0; rank < present_.size(); ++rank)
      text += fmt::format("rank {}: {}\n", rank, present_[rank] ? present_[rank]->flight_record() : "has ended");
    return text;
  }

  const std::optional<std::string>& first_failure() const { return first_failure_; }

 private:
  void wait_for_the_others() {
    std::unique_lock lock(mutex_);
    ++standing_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return standing_ == static_cast<Rank>(present_.size()) || first_failure_; });
  }

  class Presence {
   public:
    Presence(Roll& roll, Rank rank, Communicator* comm) : roll_(roll), rank_(rank) { set(comm); }
    ~Presence() { set(nullptr); }
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

   private:
    void set(Communicator* comm) {
      const std::lock_guard lock(roll_.mutex_);
      roll_.present_[static_cast<std::size_t>(rank_)] = comm;
    }
    Roll& roll_;
    Rank rank_;
  };

  void report(Rank rank, const std::string& what) {
    {
      const std::lock_guard lock(mutex_);
      if (first_failure_) return;
      first_failure_ = fmt::format("rank {}: {}", rank, what);
      changed_.notify_all();
    }
    abort_all(fmt::format("rank {} of the test failed", rank));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Communicator*> present_;
  Rank standing_ = 0;
  Rank left_;
  std::optional<std::string> first_failure_;
};

using MakeTransport = std::function<std::unique_ptr<Communicator>(Rank)>;

std::vector<std::jthread> start_threads(Rank world, Roll& roll, const MakeTransport& make, const RankBody& body) {
  std::vector<std::jthread> threads;
  for (Rank rank = 0; rank < world; ++rank)
    threads.emplace_back([&roll, &body, make, rank] {
      roll.run(
          rank, [&] { return make(rank); }, body, true);
      roll.end();
    });
  return threads;
}

std::vector<std::jthread> start_world(Rank world, Roll& roll, const RankBody& body, const ClusterOptions& options) {
  CommunicatorOptions communicator = options.communicator;
  if (options.way == "loopback") {
    const auto transports = std::make_shared<std::vector<std::unique_ptr<Transport>>>(loopback_world(world));
    return start_threads(
        world, roll,
        [transports, communicator](Rank rank) {
          return Communicator::over(std::move((*transports)[static_cast<std::size_t>(rank)]), communicator);
        },
        body);
  }
  if (options.way == "simulated") {
    communicator.background_progress = false;  // a thread more would not be part of the simulation
    std::vector<std::jthread> threads;
    threads.emplace_back([world, communicator, simulation = options.simulation, &roll, &body] {
      SimulatedWorld simulated(world, simulation);
      simulated.run([&](std::unique_ptr<Transport> transport) {
        const Rank rank = transport->rank();
        roll.run(
            rank, [&] { return Communicator::over(std::move(transport), communicator); }, body, false);
        roll.end();
      });
    });
    return threads;
  }
  const bool paired = options.way == "paired" || options.way.starts_with("shm+");
  const bool encrypted = options.way == "tls" || options.way == "sealed";
  communicator.transport = options.way == "paired"   ? "auto"
                           : options.way == "tls"    ? "tcp"
                           : options.way == "sealed" ? "udp"
                                                     : std::string(options.way);
  communicator.security.encrypt_everywhere = encrypted;
  return start_threads(
      world, roll,
      [store = memory_store(), world, communicator, paired](Rank rank) {
        CommunicatorOptions own = communicator;
        if (paired) own.node = rank % 2 == 0 ? "even" : "odd";
        return Communicator::connect(*store, rank, world, own);
      },
      body);
}

}  // namespace

std::vector<std::string_view> connected_ways() {
  std::vector<std::string_view> ways{"shm", "tcp", "udp"};
  // Sanitizers would see tcp, udp and shm once more; OpenSSL is not built with them.
  if (!sanitized) ways.insert(ways.end(), {"tls", "sealed", "paired"});
  const std::initializer_list<std::string_view> modules{RANVIER_TEST_MODULES};
  if (std::getenv("RANVIER_TEST_LONG") == nullptr) return ways;
  ways.emplace_back("grpc");
  ways.insert(ways.end(), modules);
  return ways;
}

std::vector<std::string_view> all_ways() {
  std::vector<std::string_view> ways{"loopback", "simulated"};
  const auto connected = connected_ways();
  ways.insert(ways.end(), connected.begin(), connected.end());
  return ways;
}

CommunicatorOptions ClusterOptions::patient() {
  CommunicatorOptions options;
  options.measure = false;  // what links are like today would choose in which order floats are added
  options.timeout = 100s;
  options.join_timeout = 100s;
  options.dead_after = 30s;
  return options;
}

void run_ranks(Rank world, const RankBody& body, const ClusterOptions& options) {
  Roll roll(world);
  auto threads = start_world(world, roll, body, options);
  std::string late;
  if (!roll.wait_for_all(options.watchdog)) {
    late = fmt::format("not all ranks ended within {} s over {}:\n{}", options.watchdog.count(), options.way,
                       roll.flight_records());
    roll.abort_all("the watchdog of the test barked");
    if (!roll.wait_for_all(20s)) {
      std::fprintf(stderr, "%snor after an abort; ending the test program\n", late.c_str());
      std::_Exit(1);
    }
  }
  threads.clear();
  if (!late.empty()) throw std::runtime_error(late);
  if (roll.first_failure()) throw std::runtime_error(*roll.first_failure());
}

}  // namespace ranvier::support
