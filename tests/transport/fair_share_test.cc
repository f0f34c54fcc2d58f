// When a flow takes a line for shared, and what of it then is its own.
#include "transport/fair_share.h"

#include <gtest/gtest.h>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

constexpr double line = 12.5e6;  // bytes a second

// An acknowledgement each millisecond, of a path that takes 2 ms without a queue.
struct Path {
  double got = 1;  // of the line
  std::chrono::milliseconds queue{};
  double lost = 0;  // of the packets
  std::uint32_t flows = 1;
  bool held_by_caller = false;
  bool busy = true;
};

class Flow {
 public:
  void run(const Path& path, std::chrono::milliseconds time) {
    for (const auto end = now_ + time; now_ < end; now_ += 1ms) {
      FairShare::Sample sample;
      sample.now = now_;
      sample.least = 2ms;
      sample.round_trip = sample.least + path.queue;
      sample.line = line;
      sample.flows = path.flows;
      sample.acknowledged = path.busy ? static_cast<std::size_t>(path.got * line / 1000) : 0;
      sample.lost = static_cast<std::size_t>(path.lost * static_cast<double>(sample.acknowledged));
      sample.arrival_rate = path.busy ? path.got * line : 0;
      sample.held_by_caller = path.held_by_caller;
      share_.sample(sample);
    }
  }
  bool shared() const { return share_.shared(); }
  double rate() const { return share_.rate() / line; }

 private:
  FairShare share_;
  FairShare::Time now_ = FairShare::Time() + 1h;
};

TEST(FairShare, is_alone_where_all_that_the_line_carries_is_its_own) {
  Flow flow;
  flow.run({.got = 0.97, .queue = 20ms}, 3s);
  EXPECT_FALSE(flow.shared());
  flow.run({.got = 0.5}, 3s);  // less, but there is no queue: it is slow for another reason
  EXPECT_FALSE(flow.shared());
  flow.run({.got = 0.5, .lost = 0.02}, 3s);
  EXPECT_FALSE(flow.shared());
}

TEST(FairShare, takes_half_beside_somebody_who_keeps_the_queue_full) {
  for (const double got : {0.05, 0.3, 0.5, 0.8}) {
    Flow flow;
    flow.run({.got = got, .queue = 20ms}, 1500ms);
    EXPECT_TRUE(flow.shared()) << got;
    EXPECT_NEAR(flow.rate(), 0.49, 0.01) << got;
    flow.run({.got = 0.49}, 100ms);
    EXPECT_TRUE(flow.shared());
    flow.run({.got = 0.49}, 1s);
    EXPECT_FALSE(flow.shared());
  }
}

TEST(FairShare, takes_half_where_losses_leave_it_less_though_the_queue_is_empty_at_times) {
  Flow flow;
  for (int turn = 0; turn < 40; ++turn) flow.run({.got = 0.2, .queue = turn % 2 == 0 ? 0ms : 4ms, .lost = 0.03}, 10ms);
  EXPECT_TRUE(flow.shared());
}

// Models of the path share by themselves; each of them would lose if all raised their claims.
TEST(FairShare, raises_no_claim_where_the_queue_is_as_short_as_models_make_it) {
  Flow flow;
  flow.run({.got = 0.25, .queue = 8ms}, 3s);
  EXPECT_FALSE(flow.shared());
  flow.run({.got = 0.7, .queue = 8ms}, 1s);  // it has more than half
  EXPECT_TRUE(flow.shared());
}

// Those of one job count one another: together they leave a share to the others.
TEST(FairShare, divides_the_line_among_the_flows_of_a_job_and_others) {
  Flow alone;
  alone.run({.got = 0.31, .queue = 20ms, .flows = 3}, 3s);
  EXPECT_FALSE(alone.shared());
  Flow flow;
  flow.run({.got = 0.25, .queue = 20ms, .flows = 3}, 3s);  // perhaps they are three, perhaps two at a time
  EXPECT_FALSE(flow.shared());
  flow.run({.got = 0.1, .queue = 20ms, .flows = 3}, 1s);
  EXPECT_TRUE(flow.shared());
  EXPECT_NEAR(flow.rate(), 0.245, 0.005);
}

// Rounds of a collective depend on each other, so that a sender waits now and then: it may have too much, not too
// little.
TEST(FairShare, of_a_caller_that_holds_it_back_only_lowers_what_it_takes) {
  const Path path{.got = 0.85, .queue = 20ms, .held_by_caller = true};
  Flow flow;
  flow.run(path, 1500ms);
  EXPECT_TRUE(flow.shared());
  Flow little;
  Path less = path;
  less.got = 0.2;
  little.run(less, 3s);
  EXPECT_FALSE(little.shared());
}

// A core that was late makes others look busy where there are none.
TEST(FairShare, is_not_misled_by_one_odd_moment) {
  Flow flow;
  flow.run({.got = 0.97, .queue = 5ms}, 1s);
  flow.run({.got = 0.85, .queue = 5ms}, 500ms);
  flow.run({.got = 0.97, .queue = 5ms}, 1s);
  EXPECT_FALSE(flow.shared());
}

// What a burst gets of the line while it lasts is all of it.
TEST(FairShare, counts_no_pauses) {
  Flow flow;
  for (int burst = 0; burst < 30; ++burst) {
    flow.run({.got = 0.97, .queue = 10ms}, 60ms);
    flow.run({.queue = 10ms, .busy = false}, 60ms);
  }
  EXPECT_FALSE(flow.shared());
}

TEST(FairShare, takes_less_where_others_do_not_yield_but_never_nothing) {
  Flow flow;
  flow.run({.got = 0.3, .queue = 20ms}, 1s);
  double before = flow.rate();
  flow.run({.got = 0.3, .queue = 20ms, .lost = 0.3}, 1s);
  EXPECT_LT(flow.rate(), 0.8 * before);
  flow.run({.got = 0.3, .queue = 20ms, .lost = 0.5}, 20s);
  EXPECT_NEAR(flow.rate(), 0.49 / 4, 0.01);
  before = flow.rate();
  flow.run({.got = 0.3, .queue = 20ms, .lost = 0.03}, 2s);  // what a flow loses that probes for more
  EXPECT_NEAR(flow.rate(), before, 1e-6);
  flow.run({.got = 0.3, .queue = 20ms}, 20s);
  EXPECT_NEAR(flow.rate(), 0.49, 0.01);
}

}  // namespace
}  // namespace ranvier::transport
