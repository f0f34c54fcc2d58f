// The engine under hundreds of simulated networks: losses, reorderings, partial transfers, late reads and crashes, each
// run replayed exactly by its seed.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "conformance/collective_case.h"
#include "conformance/errors.h"
#include "ranvier/simulated.h"
#include "support/sanitized.h"

namespace ranvier::conformance {
namespace {

using namespace std::chrono_literals;

using RankBody = std::function<void(Communicator&)>;

// What comes out of a body is a failure of the test, with the seed that replays it in its trace.
void run(SimulatedWorld& world, const RankBody& body) try {
  world.run([&](std::unique_ptr<Transport> transport) {
    CommunicatorOptions options;
    options.background_progress = false;
    options.timeout = 60s;
    const auto comm = Communicator::over(std::move(transport), options);
    body(*comm);
  });
} catch (const std::exception& error) {
  ADD_FAILURE() << error.what();
}

// A network drawn from a seed: from fast and clean to slow, lossy and tight.
SimulationOptions drawn_network(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto one_of = [&](auto... choices) {
    const std::array all{choices...};
    return all[generator() % all.size()];
  };
  return {.seed = seed,
          .most_delay =
              one_of(std::chrono::nanoseconds(1us), std::chrono::nanoseconds(100us), std::chrono::nanoseconds(5ms)),
          .loss = one_of(0.0, 0.01, 0.2),
          .slice_bytes = one_of(std::size_t{64}, std::size_t{256}, std::size_t{4096}),
          .buffered_slices = one_of(std::size_t{1}, std::size_t{2}, std::size_t{8}),
          .cut = one_of(0.0, 0.1, 0.6),
          .deferred_reads = one_of(false, true)};
}

// A program of collectives and messages drawn from a seed, the same on all ranks.
class DrawnProgram {
 public:
  DrawnProgram(std::uint64_t seed, Rank world) : generator_(seed ^ 0x5eed), world_(world) {}

  // Runs `steps` collectives, some blocking, some started and waited for later, with messages in between.
  void run(Communicator& comm, int steps) {
    std::deque<CaseRun> runs;
    std::deque<Work> works;
    for (int step = 0; step < steps; ++step) {
      runs.emplace_back(draw(static_cast<std::size_t>(step)), comm);
      const bool started = generator_() % 2 == 0;
      const bool message = generator_() % 4 == 0;
      Request request = runs.back().request();
      request.priority = static_cast<int>(generator_() % 4) - 1;
      if (started)
        works.push_back(comm.start(request));
      else
        comm.run(request);
      if (message) pass_round(comm, step);
      while (works.size() > 6) {
        works.front().wait();
        works.pop_front();
      }
    }
    for (Work& work : works) work.wait();
    for (const CaseRun& run : runs) run.check();
  }

 private:
  Case draw(std::size_t salt) {
    constexpr std::array collectives{Collective::all_reduce,     Collective::all_reduce, Collective::all_reduce,
                                     Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
                                     Collective::reduce,         Collective::all_to_all, Collective::gather,
                                     Collective::scatter};
    const Collective collective = collectives[generator_() % collectives.size()];
    const auto names = algorithms_for(collective, world_);
    Case c{.collective = collective,
           .algorithm = names[generator_() % names.size()],
           .count = std::array<std::size_t, 6>{0, 1, 3, 65, 301, 1500}[generator_() % 6],
           .dtype = all_dtypes[generator_() % all_dtypes.size()],
           .root = static_cast<Rank>(generator_() % static_cast<std::uint64_t>(world_)),
           .in_place = generator_() % 2 == 0 && collective != Collective::all_to_all,
           .misalign = generator_() % 4,
           .salt = salt};
    return c;
  }

  void pass_round(Communicator& comm, int step) const {
    if (world_ == 1) return;
    const std::vector<std::int32_t> mine(200, comm.rank() + step);
    std::vector<std::int32_t> theirs(200);
    const Rank previous = (comm.rank() + world_ - 1) % world_;
    Work sending = comm.start_send(mine, (comm.rank() + 1) % world_);
    comm.recv(theirs, previous);
    sending.wait();
    EXPECT_EQ(theirs, std::vector<std::int32_t>(200, previous + step));
  }

  std::mt19937_64 generator_;
  Rank world_;
};

Rank world_of(std::uint64_t seed) { return static_cast<Rank>(1 + seed % 8); }

constexpr std::uint64_t seeds = support::sanitized ? 40 : 100;

TEST(SimulatedNetworks, never_change_a_result) {
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedWorld world(world_of(seed), drawn_network(seed));
    run(world, [&](Communicator& comm) { DrawnProgram(seed, comm.world()).run(comm, 20); });
  }
}

TEST(SimulatedNetworks, replay_exactly_from_a_seed) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::array<std::uint64_t, 2> traces{};
    for (std::uint64_t& trace : traces) {
      SimulatedWorld world(world_of(seed), drawn_network(seed));
      run(world, [&](Communicator& comm) { DrawnProgram(seed, comm.world()).run(comm, 10); });
      trace = world.trace();
    }
    EXPECT_EQ(traces[0], traces[1]);
  }
}

TEST(SimulatedCrashes, end_every_survivor_with_an_error_that_names_the_lost_rank) {
  int crashes = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Rank size = 2 + world_of(seed) % 7;
    SimulationOptions options = drawn_network(seed);
    std::mt19937_64 generator(seed);
    const Rank lost = static_cast<Rank>(generator() % static_cast<std::uint64_t>(size));
    options.crash = {.rank = lost, .at = std::chrono::microseconds(generator() % 30'000), .noticed_after = 100ms};
    SimulatedWorld world(size, options);
    run(world, [&](Communicator& comm) {
      const auto error = error_of([&] { DrawnProgram(seed, comm.world()).run(comm, 40); });
      if (!error) return;  // it was done before
      if (comm.rank() == lost) ++crashes;
      EXPECT_EQ(error->kind(), comm.rank() == lost ? ErrorKind::aborted : ErrorKind::peer_lost) << error->what();
      EXPECT_EQ(error->culprit(), lost);
      EXPECT_THAT(error->what(), testing::HasSubstr(rank_name(lost)));
      // And it stays so.
      EXPECT_THAT(error_of([&] { comm.barrier(); }), throws(error->kind(), rank_name(lost)));
    });
  }
  EXPECT_GT(crashes, 20);
}

TEST(SimulatedCrashes, leave_no_rank_waiting_that_can_be_done_without_the_lost_one) {
  // The survivors of a group that needs the lost rank no more are done: it crashed after its last part.
  SimulatedWorld world(3, {.crash = SimulationOptions::Crash{.rank = 0, .at = 50ms, .noticed_after = 1ms}});
  run(world, [&](Communicator& comm) { run_case(comm, {.count = 100}); });
  EXPECT_LT(world.now(), 50ms);
}

}  // namespace
}  // namespace ranvier::conformance
