#include "train/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "engine/rendezvous.h"
#include "integrations/trainer/rendezvous.h"
#include "meeting.h"
#include "ranvier/store.h"

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

// Calls `act` with the store in which the ranks meet.
void visit_store(const cli::WorldPlace& place, milliseconds limit, const std::function<void(Store&)>& act) {
  if (place.launcher.empty()) return act(*memory_store());
  if (!place.store.empty()) return act(cli::Meeting(place).store());
  const bool serves = place.rank == 0 && !place.master_runs_elsewhere;
  const auto store = trainer::tcp_store({.address = place.master_address,
                                         .port = place.master_port,
                                         .serve = serves,
                                         .prefix = "ranvier/" + place.attempt},
                                        limit);
  const StoreVisit visit(*store, place, serves);
  act(*store);
}

}  // namespace

std::unique_ptr<Communicator> join(const cli::WorldPlace& place, const CommunicatorOptions& options) {
  std::unique_ptr<Communicator> communicator;
  visit_store(place, options.join_timeout,
              [&](Store& store) { communicator = Communicator::connect(store, place.rank, place.world, options); });
  return communicator;
}

void decline(const cli::WorldPlace& place, const std::exception& why, milliseconds limit) {
  try {
    visit_store(place, limit, [&](Store& store) {
      engine::decline(why, engine::exchange_through(store, place.rank, place.world), steady_clock::now() + limit);
    });
  } catch (const std::exception&) {  // nobody is there who could be told
  }
}

}  // namespace ranvier::train
