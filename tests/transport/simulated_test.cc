#include "ranvier/simulated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "ranvier/error.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using Body = std::function<void(Transport&)>;

void run(SimulatedWorld& world, const Body& body) {
  world.run([&](std::unique_ptr<Transport> transport) { body(*transport); });
}

std::vector<std::byte> pattern(std::size_t size, Rank from, Lane lane) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + static_cast<std::size_t>(from) * 31 + lane);
  return bytes;
}

void send_all(Transport& transport, Rank to, Lane lane, ConstBytes bytes) {
  while (!bytes.empty()) {
    const std::size_t accepted = transport.try_send(to, lane, {}, bytes);
    bytes = bytes.subspan(accepted);
    if (accepted == 0) transport.wait(1ms);
  }
  while (!transport.sent(to, lane)) transport.wait(1ms);
}

std::vector<std::byte> recv_all(Transport& transport, Rank from, Lane lane, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::size_t got = 0;
  while (got < size) {
    const Bytes into = Bytes(bytes).subspan(got);
    const ConstBytes view = transport.try_recv(from, lane, into);
    if (view.empty()) {
      transport.wait(1ms);
      continue;
    }
    const std::size_t taken = std::min(view.size(), into.size());
    if (view.data() != into.data()) {
      std::copy_n(view.begin(), taken, into.begin());
      transport.release(from, lane, taken);
    }
    got += taken;
  }
  return bytes;
}

// Every pair on every lane, both directions: what a collective does at its worst.
void exchange_everything(Transport& transport, std::size_t size) {
  struct Stream {
    Rank peer;
    Lane lane;
    std::vector<std::byte> out;
    std::size_t sent = 0;
    std::vector<std::byte> in;
  };
  std::vector<Stream> streams;
  for (Rank peer = 0; peer < transport.world(); ++peer)
    for (Lane lane = 0; lane < lane_count; ++lane)
      streams.push_back({peer, lane, pattern(size, transport.rank(), lane), 0, {}});
  for (;;) {
    bool all_done = true;
    bool moved = false;
    for (Stream& stream : streams) {
      if (stream.sent < size) {
        const auto accepted =
            transport.try_send(stream.peer, stream.lane, {}, ConstBytes(stream.out).subspan(stream.sent));
        stream.sent += accepted;
        moved |= accepted > 0;
      }
      const ConstBytes view = transport.try_recv(stream.peer, stream.lane, {});
      stream.in.insert(stream.in.end(), view.begin(), view.end());
      transport.release(stream.peer, stream.lane, view.size());
      moved |= !view.empty();
      all_done =
          all_done && stream.sent == size && stream.in.size() == size && transport.sent(stream.peer, stream.lane);
    }
    if (all_done) break;
    if (!moved) transport.wait(1ms);
  }
  for (const Stream& stream : streams) EXPECT_EQ(stream.in, pattern(size, stream.peer, stream.lane));
}

SimulationOptions hostile(std::uint64_t seed) {
  return {
      .seed = seed, .loss = 0.1, .slice_bytes = 256, .buffered_slices = 2, .cut = 0.3, .deferred_reads = seed % 2 == 0};
}

TEST(Simulated, every_byte_arrives_once_and_in_the_order_of_its_lane) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SimulatedWorld world(static_cast<Rank>(1 + seed % 5), hostile(seed));
    run(world, [](Transport& transport) { exchange_everything(transport, 1000); });
    EXPECT_GT(world.messages(), 0U);
  }
}

TEST(Simulated, one_seed_is_one_run_and_another_seed_another) {
  const auto trace_of = [](std::uint64_t seed) {
    SimulatedWorld world(4, hostile(seed));
    run(world, [](Transport& transport) { exchange_everything(transport, 500); });
    return std::pair(world.trace(), world.now());
  };
  EXPECT_EQ(trace_of(7), trace_of(7));
  EXPECT_NE(trace_of(7), trace_of(8));
}

TEST(Simulated, lanes_overtake_one_another) {
  bool overtaken = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SimulatedWorld world(2, {.seed = seed});
    run(world, [&](Transport& transport) {
      const auto bytes = pattern(8, 0, 0);
      if (transport.rank() == 0) {
        send_all(transport, 1, 0, bytes);
        send_all(transport, 1, 1, bytes);
        return;
      }
      while (transport.try_recv(0, 1, {}).empty()) transport.wait(1ms);
      overtaken |= transport.try_recv(0, 0, {}).empty();
    });
  }
  EXPECT_TRUE(overtaken);
}

TEST(Simulated, time_passes_by_delays_and_not_by_the_clock_on_the_wall) {
  SimulatedWorld world(2, {.least_delay = 1h, .most_delay = 1h});
  run(world, [](Transport& transport) {
    const auto bytes = pattern(8, 0, 0);
    if (transport.rank() == 0) send_all(transport, 1, 0, bytes);
    if (transport.rank() == 1) {
      EXPECT_EQ(recv_all(transport, 0, 0, 8), bytes);
    }
  });
  EXPECT_EQ(world.now(), 1h);
  EXPECT_EQ(world.messages(), 1U);
}

TEST(Simulated, a_lost_message_costs_a_retransmission) {
  const auto duration = [](double loss) {
    SimulatedWorld world(2, {.seed = 3, .loss = loss, .retransmit_after = 1s});
    run(world, [](Transport& transport) {
      const auto bytes = pattern(64 * 4096, 0, 0);
      if (transport.rank() == 0) send_all(transport, 1, 0, bytes);
      if (transport.rank() == 1) {
        EXPECT_EQ(recv_all(transport, 0, 0, bytes.size()), bytes);
      }
    });
    return world.now();
  };
  EXPECT_LT(duration(0), 1s);
  EXPECT_GT(duration(0.5), 10s);
}

TEST(Simulated, a_link_takes_no_more_than_it_buffers_until_it_is_read) {
  SimulatedWorld world(2, {.slice_bytes = 100, .buffered_slices = 3});
  run(world, [](Transport& transport) {
    const auto bytes = pattern(1000, 0, 0);
    if (transport.rank() == 1) {
      EXPECT_EQ(recv_all(transport, 0, 0, 350).size(), 350U);
      return;
    }
    std::size_t sent = 0;
    while (const std::size_t accepted = transport.try_send(1, 0, {}, ConstBytes(bytes).subspan(sent))) sent += accepted;
    EXPECT_EQ(sent, 300U);
    send_all(transport, 1, 0, ConstBytes(bytes).subspan(300, 50));
  });
}

TEST(Simulated, a_head_is_taken_whole_in_front_of_a_slice) {
  SimulatedWorld world(2, {.slice_bytes = 100});
  run(world, [](Transport& transport) {
    const auto head = pattern(24, 0, 0);
    const auto body = pattern(1000, 0, 1);
    if (transport.rank() == 0) {
      EXPECT_EQ(transport.try_send(1, 0, head, body), 124U);
      return;
    }
    const auto bytes = recv_all(transport, 0, 0, 124);
    EXPECT_TRUE(std::equal(head.begin(), head.end(), bytes.begin()));
    EXPECT_TRUE(std::equal(bytes.begin() + 24, bytes.end(), body.begin()));
  });
}

TEST(Simulated, a_view_that_was_not_used_is_shown_again_and_grows) {
  SimulatedWorld world(2, {.slice_bytes = 8, .buffered_slices = 2});
  run(world, [](Transport& transport) {
    const auto bytes = pattern(64, 0, 0);
    if (transport.rank() == 0) return send_all(transport, 1, 0, bytes);
    ConstBytes view;
    while (view.size() < bytes.size()) {
      const std::size_t before = view.size();
      view = transport.try_recv(0, 0, {});
      EXPECT_GE(view.size(), before);
      transport.wait(1ms);
    }
    EXPECT_TRUE(std::equal(view.begin(), view.end(), bytes.begin()));
    transport.release(0, 0, view.size());
  });
}

TEST(Simulated, deferred_reads_catch_a_sender_that_overwrites_too_early) {
  for (const bool deferred : {false, true}) {
    SimulatedWorld world(2, {.deferred_reads = deferred});
    run(world, [&](Transport& transport) {
      if (transport.rank() == 0) {
        std::vector<std::byte> bytes(8, std::byte{1});
        EXPECT_EQ(transport.try_send(1, 0, {}, bytes), 8U);
        EXPECT_EQ(transport.sent(1, 0), !deferred);
        std::fill(bytes.begin(), bytes.end(), std::byte{2});
        while (!transport.sent(1, 0)) transport.wait(1ms);
        return;
      }
      EXPECT_EQ(recv_all(transport, 0, 0, 1)[0], deferred ? std::byte{2} : std::byte{1});
    });
  }
}

TEST(Simulated, a_cancelled_transport_touches_no_memory_any_more) {
  SimulatedWorld world(2, {.least_delay = 1ms, .most_delay = 1ms, .deferred_reads = true});
  run(world, [](Transport& transport) {
    if (transport.rank() == 0) {
      const auto bytes = std::make_unique<std::vector<std::byte>>(64);
      EXPECT_EQ(transport.try_send(1, 0, {}, *bytes), 64U);
      transport.cancel();
      EXPECT_THROW(transport.try_recv(1, 0, {}), Error);
      return;
    }
    for (int i = 0; i < 10; ++i) transport.wait(1ms);
    EXPECT_TRUE(transport.try_recv(0, 0, {}).empty());
  });
}

TEST(Simulated, what_a_rank_sent_before_it_left_still_arrives) {
  SimulatedWorld world(2, {.least_delay = 1s, .most_delay = 1s});
  run(world, [](Transport& transport) {
    const auto bytes = pattern(8, 0, 0);
    if (transport.rank() == 0) {
      EXPECT_EQ(transport.try_send(1, 0, {}, bytes), 8U);
    }
    if (transport.rank() == 1) {
      EXPECT_EQ(recv_all(transport, 0, 0, 8), bytes);
    }
  });
}

TEST(Simulated, a_deadlock_is_named_at_once_whether_waits_are_bounded_or_not) {
  for (const auto limit : {std::chrono::nanoseconds(1ms), std::chrono::nanoseconds::max()}) {
    SimulatedWorld world(3, {});
    try {
      run(world, [&](Transport& transport) {
        if (transport.rank() == 1) return;
        while (transport.try_recv(1, 0, {}).empty()) transport.wait(limit);
      });
      FAIL() << "no deadlock was found";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_THAT(error.what(), HasSubstr("these ranks wait: 0, 2; and these have ended: 1"));
    }
  }
}

TEST(Simulated, a_rank_that_polls_without_waiting_does_not_stop_the_world) {
  SimulatedWorld world(2, {});
  run(world, [](Transport& transport) {
    const auto bytes = pattern(8, 0, 0);
    if (transport.rank() == 0) return send_all(transport, 1, 0, bytes);
    while (transport.try_recv(0, 0, {}).empty()) {
    }
  });
}

TEST(Simulated, an_interrupt_ends_a_wait_without_limit) {
  SimulatedWorld world(2, {});
  Transport* sleeper = nullptr;
  run(world, [&](Transport& transport) {
    if (transport.rank() == 0) {
      sleeper = &transport;
      transport.wait(std::chrono::nanoseconds::max());
      return;
    }
    while (sleeper == nullptr) transport.wait(1ms);
    sleeper->interrupt();
  });
  EXPECT_LT(world.now(), 1s);
}

TEST(Simulated, a_crash_silences_a_rank_and_the_others_learn_of_it_when_it_is_noticed) {
  SimulatedWorld world(3, {.crash = SimulationOptions::Crash{.rank = 1, .at = 5ms, .noticed_after = 2s}});
  std::vector<std::chrono::nanoseconds> ended(3);
  run(world, [&](Transport& transport) {
    const auto self = static_cast<std::size_t>(transport.rank());
    try {
      for (;;) transport.wait(1ms);
    } catch (const Error& error) {
      ended[self] = world.now();
      EXPECT_EQ(error.culprit(), 1);
      EXPECT_EQ(error.kind(), transport.rank() == 1 ? ErrorKind::aborted : ErrorKind::peer_lost);
    }
  });
  EXPECT_THAT(ended, testing::ElementsAre(2005ms, 5ms, 2005ms));
}

TEST(Simulated, what_a_crashed_rank_had_under_way_is_lost_and_its_exception_dropped) {
  SimulatedWorld world(2, {.least_delay = 10ms,
                           .most_delay = 10ms,
                           .crash = SimulationOptions::Crash{.rank = 0, .at = 5ms, .noticed_after = 1s}});
  bool arrived = false;
  run(world, [&](Transport& transport) {
    if (transport.rank() == 0) {
      const auto bytes = pattern(8, 0, 0);
      EXPECT_EQ(transport.try_send(1, 0, {}, bytes), 8U);
      for (;;) transport.wait(1ms);
    }
    for (int i = 0; i < 100; ++i) {
      transport.wait(1ms);
      arrived |= !transport.try_recv(0, 0, {}).empty();
    }
  });
  EXPECT_FALSE(arrived);
}

TEST(Simulated, a_rank_that_has_left_can_no_longer_crash) {
  SimulatedWorld world(2, {.crash = SimulationOptions::Crash{.rank = 0, .at = 5ms, .noticed_after = 1ms}});
  run(world, [](Transport& transport) {
    for (int i = 0; transport.rank() == 1 && i < 20; ++i) transport.wait(1ms);
  });
  EXPECT_EQ(world.now(), 20ms);
}

TEST(Simulated, the_first_exception_of_a_body_comes_out_of_run) {
  SimulatedWorld world(3, {});
  try {
    run(world, [](Transport& transport) {
      if (transport.rank() == 2) throw Error(ErrorKind::config, "the cause", 2);
      for (;;) transport.wait(1ms);
    });
    FAIL() << "nothing came out";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the cause");
  }
}

TEST(Simulated, impossible_worlds_are_refused) {
  const auto refused = [](Rank world, const SimulationOptions& options) {
    try {
      SimulatedWorld(world, options);
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage;
    }
  };
  EXPECT_TRUE(refused(0, {}));
  EXPECT_TRUE(refused(2, {.crash = SimulationOptions::Crash{.rank = 2}}));
  EXPECT_TRUE(refused(2, {.buffered_slices = 0}));
  EXPECT_TRUE(refused(2, {.least_delay = 2ms, .most_delay = 1ms}));
  SimulatedWorld world(1, {});
  run(world, [](Transport&) {});
  EXPECT_THROW(run(world, [](Transport&) {}), Error);
}

}  // namespace
}  // namespace ranvier
