// Deadlines, aborts, lost ranks and impossible calls: every one an Error whose kind says the remedy.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "conformance/collective_case.h"
#include "conformance/errors.h"
#include "conformance/worlds.h"

namespace ranvier::conformance {
namespace {

using namespace std::chrono_literals;

class Failure : public Ways {};

// Lets rank 0 fail before the others go: no rank leaves while it is still waited for.
class Gate {
 public:
  void open() { open_ = true; }
  void wait() const {
    for (int i = 0; i < 30'000 && !open_; ++i) std::this_thread::sleep_for(1ms);
  }

 private:
  std::atomic<bool> open_ = false;
};

TEST_P(Failure, a_deadline_that_passes_names_the_operation_and_the_rank_that_did_not_come) {
  if (simulated()) GTEST_SKIP() << "a simulation finds the deadlock before the deadline";
  Gate gate;
  run(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return gate.wait();
    std::vector<float> data(10, 1);
    const auto error = error_of([&] { comm.all_reduce(data, {.timeout = 50ms}); });
    EXPECT_THAT(error, throws(ErrorKind::timeout, "all_reduce"));
    EXPECT_THAT(error, throws(ErrorKind::timeout, "rank 1"));
    EXPECT_EQ(error->culprit(), 1);
    EXPECT_THAT(error->flight_record(), testing::HasSubstr("all_reduce"));
    gate.open();
  });
}

TEST_P(Failure, of_parts_of_different_sizes_says_how_much_they_are) {
  if (simulated()) GTEST_SKIP() << "a simulation finds the deadlock before the deadline";
  Gate gate;
  run(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return gate.wait();
    std::vector<float> given(3), taken(5);
    const std::vector<std::size_t> input_splits{2, 1}, output_splits{2, 3};
    const auto error = error_of([&] {
      comm.run({.collective = Collective::all_to_all,
                .input = given,
                .output = taken,
                .input_splits = input_splits,
                .output_splits = output_splits,
                .timeout = 50ms});
    });
    EXPECT_THAT(error, throws(ErrorKind::timeout, "(f32, 4 B to send, 12 B to receive)"));
    gate.open();
  });
}

// Whoever comes late or not at all holds up a gather, and what comes after it on its lane.
class GatherInFront {
 public:
  GatherInFront(Communicator& comm, std::chrono::milliseconds limit) {
    Request gather{
        .collective = Collective::gather, .input = part_, .output = whole_, .root = 0, .algorithm = "direct"};
    if (comm.rank() != 0) gather.output = {nullptr, 0, DType::f32};
    all_.push_back(comm.start(gather));
    for (auto& values : sent_) {
      Request broadcast{.collective = Collective::broadcast,
                        .input = values,
                        .output = values,
                        .root = 1,
                        .algorithm = "direct",
                        .timeout = limit};
      if (comm.rank() != 1) broadcast.input = {nullptr, 0, DType::f32};
      all_.push_back(comm.start(broadcast));
    }
  }
  void wait() { Work::wait_all(all_); }

 private:
  std::vector<float> part_ = std::vector<float>(10), whole_ = std::vector<float>(30);
  std::vector<std::vector<float>> sent_ = std::vector(4, std::vector<float>(10));
  std::vector<Work> all_;
};

TEST_P(Failure, a_deadline_of_what_is_behind_another_names_who_holds_that_up) {
  if (simulated()) GTEST_SKIP() << "a simulation finds the deadlock before the deadline";
  Gate gate;
  run(3, [&](Communicator& comm) {
    if (comm.rank() == 2) return gate.wait();
    GatherInFront all(comm, comm.rank() == 0 ? 200ms : 20s);
    if (comm.rank() == 1) return gate.wait();
    const auto error = error_of([&] { all.wait(); });
    EXPECT_THAT(error,
                throws(ErrorKind::timeout, "for rank 2 in gather #0 (f32 x 10), which is in front of broadcast"));
    EXPECT_EQ(error->culprit(), 2);
    gate.open();
  });
}

TEST_P(Failure, what_a_rank_that_left_has_sent_is_not_missed_while_another_is_waited_for) {
  if (GetParam() != "tcp") GTEST_SKIP() << "it takes seconds, and has nothing to do with the way";
  run(3, [](Communicator& comm) {
    if (comm.rank() == 2) std::this_thread::sleep_for(1500ms);  // longer than who has left is waited for
    GatherInFront(comm, 20s).wait();
  });
}

TEST_P(Failure, who_is_in_more_operations_than_the_recorder_holds_has_not_ended_the_first) {
  if (GetParam() != "tcp") GTEST_SKIP() << "it has nothing to do with the way";
  Gate gate;
  run(3, [&](Communicator& comm) {
    if (comm.rank() == 2) return gate.wait();
    std::vector<std::vector<float>> values(300, std::vector<float>(30));
    std::vector<Work> all;
    for (auto& each : values)
      all.push_back(comm.start({.collective = Collective::all_reduce,
                                .input = each,
                                .output = each,
                                .algorithm = "ring",
                                .timeout = comm.rank() == 1 ? 1s : 20s}));
    const auto error = error_of([&] { Work::wait_all(all); });
    if (comm.rank() == 1) {
      EXPECT_THAT(error, throws(ErrorKind::timeout, "rank 2 has not called it"));
      EXPECT_EQ(error->culprit(), 2);
      gate.open();
    }
  });
}

TEST_P(Failure, a_started_operation_has_its_deadline_too) {
  if (simulated()) GTEST_SKIP() << "a simulation finds the deadlock before the deadline";
  Gate gate;
  run(3, [&](Communicator& comm) {
    if (comm.rank() != 0) return gate.wait();
    std::vector<float> data(10, 1);
    Work work = comm.start_recv(data, 2, 0, 50ms);
    EXPECT_THAT(error_of([&] { work.wait(); }), throws(ErrorKind::timeout, "rank 2"));
    EXPECT_NE(work.error(), nullptr);
    // And so has what is started and never waited for; the communicator has failed by now.
    EXPECT_THAT(error_of([&] { comm.barrier(); }), throws(ErrorKind::timeout, "rank 2"));
    gate.open();
  });
}

TEST_P(Failure, an_abort_ends_what_all_ranks_are_doing_and_quotes_its_reason) {
  if (!connected()) GTEST_SKIP() << "ranks without a control plane are told of nothing";
  run(4, [](Communicator& comm) {
    std::vector<float> data(10, 1);
    if (comm.rank() == 2) {
      comm.abort("the loss is not a number");
      EXPECT_THAT(error_of([&] { comm.barrier(); }), throws(ErrorKind::aborted, "the loss is not a number"));
      return;
    }
    const auto error = error_of([&] {
      for (;;) comm.all_reduce(data);
    });
    EXPECT_THAT(error, throws(ErrorKind::aborted, "the loss is not a number"));
    EXPECT_THAT(error, throws(ErrorKind::aborted, "rank 2"));
    EXPECT_EQ(error->culprit(), 2);
  });
}

TEST_P(Failure, a_rank_that_leaves_while_it_is_needed_is_named) {
  if (!connected()) GTEST_SKIP() << "ranks without a control plane are told of nothing";
  run(3, [](Communicator& comm) {
    if (comm.rank() == 1) return;
    std::vector<float> data(10, 1);
    const auto error = error_of([&] { comm.all_reduce(data); });
    EXPECT_THAT(error, throws(ErrorKind::peer_lost, "rank 1"));
    EXPECT_EQ(error->culprit(), 1);
  });
}

TEST_P(Failure, a_rank_may_leave_as_soon_as_its_own_part_is_done) {
  for (int repetition = 0; repetition < 5; ++repetition)
    run(3, [](Communicator& comm) {
      // The root of a broadcast and the leaves of a reduction are the first to be done.
      run_case(comm, {.collective = Collective::broadcast, .count = 50'000});
      run_case(comm, {.collective = Collective::reduce, .count = 50'000, .root = 2});
    });
}

TEST_P(Failure, impossible_calls_are_refused_and_harm_nothing) {
  run(3, [](Communicator& comm) {
    std::vector<float> three(3);
    std::vector<float> four(4);
    std::vector<float> nine(9);
    std::vector<std::int32_t> integers(3);
    const auto refused = [&](auto&& call, std::string_view part) {
      EXPECT_THAT(error_of(call), throws(ErrorKind::usage, part));
    };
    refused([&] { comm.broadcast(three, 3); }, "root 3");
    refused([&] { comm.reduce(three, three, -1); }, "root -1");
    refused([&] { comm.all_gather(three, four); }, "all_gather");
    refused([&] { comm.reduce_scatter(four, three); }, "reduce_scatter");
    refused([&] { comm.all_to_all(four, four); }, "all_to_all");
    refused([&] { comm.run({.collective = Collective::all_reduce, .input = three, .output = four}); }, "all_reduce");
    refused([&] { comm.run({.collective = Collective::all_reduce, .input = three, .output = integers}); },
            "all_reduce");
    refused([&] { comm.all_reduce(three, {.op = ReduceOp::bit_and}); }, "'and' is not defined");
    refused([&] { comm.all_reduce(three, {.algorithm = "rign"}); }, "ring");
    refused([&] { comm.all_gather(three, nine, {.algorithm = "binomial_tree"}); }, "binomial_tree");
    refused([&] { comm.all_reduce(three, {.algorithm = "torus:2x2"}); }, "2x2, which has 4 ranks, but the world has 3");
    refused([&] { comm.all_reduce(three, {.algorithm = "ring:3"}); }, "write ring");
    const std::vector<std::size_t> wrong_sum{1, 2, 3};
    const std::vector<std::size_t> too_few{4, 5};
    for (const auto& splits : {wrong_sum, too_few})
      refused(
          [&] {
            comm.run({.collective = Collective::all_gather, .input = three, .output = nine, .output_splits = splits});
          },
          "splits");
    const std::vector<std::size_t> three_each{3, 3, 3};  // even, but said so
    refused(
        [&] {
          comm.run({.collective = Collective::all_gather,
                    .input = three,
                    .output = nine,
                    .output_splits = three_each,
                    .algorithm = "bruck"});
        },
        "bruck");
    refused(
        [&] {
          comm.run({.collective = Collective::all_reduce,
                    .input = std::span(nine).first(4),
                    .output = std::span(nine).subspan(1, 4)});
        },
        "overlap");
    // None of them has used up a place in the order of collectives.
    run_case(comm, {.count = 100});
  });
}

TEST_P(Failure, the_flight_record_tells_the_last_operations) {
  run(2, [](Communicator& comm) {
    run_case(comm, {.count = 3});
    run_case(comm, {.collective = Collective::broadcast, .count = 3});
    const std::string record = comm.flight_record();
    EXPECT_THAT(record, testing::HasSubstr("all_reduce f32 sum 12 B"));
    EXPECT_LT(record.find("all_reduce"), record.find("broadcast"));
  });
}

INSTANTIATE_TEST_SUITE_P(, Failure, testing::ValuesIn(support::all_ways()), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
