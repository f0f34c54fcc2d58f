#include "train/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/socket.h"
#include "integrations/trainer/rendezvous.h"
#include "meeting.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/security.h"
#include "ranvier/store.h"
#include "ranvier/topology.h"
#include "ranvier/transport.h"
#include "ranvier/tuning.h"

namespace ranvier::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Rank 0, where it serves torch's store, leaves it last: others still read there why they cannot meet.
class StoreVisit {
 public:
  StoreVisit(Store& store, const cli::WorldPlace& place, bool serves) : store_(store), place_(place), serves_(serves) {}
  ~StoreVisit() {
    try {
      store_.set(goodbye_of(place_.rank), "gone");
      const auto until = steady_clock::now() + longest_goodbye;
      for (Rank rank = 0; serves_ && rank < place_.world; ++rank)
        store_.get(goodbye_of(rank),
                   std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - steady_clock::now())));
    } catch (const std::exception&) {  // somebody did not come, or has died
    }
  }
  StoreVisit(const StoreVisit&) = delete;
  StoreVisit& operator=(const StoreVisit&) = delete;

 private:
  static constexpr milliseconds longest_goodbye{2000};
  static std::string goodbye_of(Rank rank) { return fmt::format("left/{}", rank); }

  Store& store_;
  const cli::WorldPlace& place_;
  const bool serves_;
};

// Where others leave what they have not left yet: this looks meanwhile whether they still may.
class CheckingStore final : public Store {
 public:
  CheckingStore(Store& store, const std::function<void()>& check) : store_(store), check_(check) {}

  void set(const std::string& key, std::string_view value) override { store_.set(key, value); }
  std::string get(const std::string& key, milliseconds timeout) override {
    const auto deadline = steady_clock::now() + timeout;
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
      try {
        return store_.get(key, std::clamp(left, milliseconds(0), between_checks));
      } catch (const Error& late) {
        if (late.kind() != ErrorKind::timeout || left <= between_checks) throw;
      }
      check_();
    }
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return store_.add(key, delta); }

 private:
  static constexpr milliseconds between_checks{100};

  Store& store_;
  const std::function<void()>& check_;
};

// Calls `act` with the store in which the ranks meet.
void visit_store(const cli::WorldPlace& place, milliseconds limit, const std::function<void(Store&)>& act) {
  if (place.launcher.empty()) return act(*memory_store());
  if (!place.store.empty()) {
    const cli::Meeting meeting(place);
    cli::announce(meeting.store(), place);
    return act(meeting.store());
  }
  const bool serves = place.rank == 0 && !place.master_runs_elsewhere;
  const auto store = trainer::tcp_store({.address = place.master_address,
                                         .port = place.master_port,
                                         .serve = serves,
                                         .prefix = "ranvier/" + place.attempt},
                                        limit);
  const StoreVisit visit(*store, place, serves);
  act(*store);
}

// They are no processes of an MPI job; of shm+mpi they need none, since they share a host.
void check_transport(const CommunicatorOptions& options, Rank world) {
  const TransportChoice choice = parse_transport(options.transport);
  if (choice.inside.empty() && choice.between == "mpi")
    throw Error(ErrorKind::usage,
                fmt::format("transport mpi serves processes that MPI knows, and those of --workers it "
                            "does not; start them with mpirun -n {} ranvier train",
                            world));
  if (const std::string missing = missing_transport(choice.between); !missing.empty())
    throw Error(ErrorKind::config, missing);
  if (choice.loss > 0 && options.link_bytes_per_second > 0)
    throw Error(
        ErrorKind::usage,
        fmt::format("transport {} lets gradients be lost, and a --link-rate holds all bytes back alike; take udp, "
                    "which is exact, or leave the rate out",
                    options.transport));
  if (options.algorithm == "vendor")
    throw Error(ErrorKind::usage, fmt::format("transport {} has no collectives of its own for algorithm vendor; name "
                                              "another algorithm, or start mpirun -n {} ranvier train --transport mpi",
                                              options.transport, world));
}

}  // namespace

void check_meeting(const CommunicatorOptions& options, Rank world) {
  check_transport(options, world);
  if (options.algorithm != "auto") {
    const AlgorithmSpec spec = parse_algorithm(options.algorithm);
    const Algorithm& algorithm = spec.algorithm();
    algorithm.build(
        {.collective = algorithm.collectives.front(), .world = world, .dims = spec.dims, .periodic = spec.periodic});
  }
  if (!options.topology.empty()) make_topology(options.topology, world);
  if (!options.tuning.empty()) TuningTable::read(options.tuning);
  check_security(options.security);
  listen_on(options.interface_address, {}, {});
}

std::unique_ptr<Communicator> join(const cli::WorldPlace& place, CommunicatorOptions options,
                                   const std::function<void()>& check) {
  options.node = place.node;
  std::unique_ptr<Communicator> communicator;
  visit_store(place, options.join_timeout, [&](Store& store) {
    CheckingStore checking(store, check);
    communicator = Communicator::connect(check ? checking : store, place.rank, place.world, options);
  });
  return communicator;
}

void decline(const cli::WorldPlace& place, const std::exception& why, milliseconds limit) {
  try {
    visit_store(place, limit, [&](Store& store) {
      Communicator::decline(store, place.rank, place.world, why, {.join_timeout = limit});
    });
  } catch (const std::exception&) {  // nobody is there who could be told
  }
}

}  // namespace ranvier::train
