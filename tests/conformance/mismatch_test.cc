// Ranks that disagree are told so, by name, before any data is used.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <vector>

#include "conformance/collective_case.h"
#include "conformance/errors.h"
#include "conformance/worlds.h"

namespace ranvier::conformance {
namespace {

using namespace std::chrono_literals;

class Mismatch : public Ways {
 protected:
  // All ranks run `common`, but the last one runs `other`.
  void expect_refused(Rank world, const Case& common, const Case& other) const {
    SCOPED_TRACE(describe(common) + " against " + describe(other));
    int told = refused(world, common, other, patience());
    // Of ranks that only their deadlines end none has met the disagreement before, perhaps, on a busy machine.
    if (told == 0) told = refused(world, common, other, 30s);
    if (connected())
      EXPECT_EQ(told, world);
    else
      EXPECT_GE(told, 1);
  }

 private:
  // How many ranks are told.
  int refused(Rank world, const Case& common, const Case& other, std::chrono::milliseconds limit) const {
    std::atomic<int> told = 0;
    run(world, [&](Communicator& comm) {
      const CaseRun run(comm.rank() == world - 1 ? other : common, comm);
      Request request = run.request();
      // Without a control plane nobody tells the ranks that have not met the disagreement themselves.
      if (!connected()) request.timeout = limit;
      const auto error = error_of([&] {
        comm.run(request);
        if (connected()) comm.barrier();  // for those who only had to send
      });
      if (!error) return;
      if (error->kind() == ErrorKind::mismatch) {
        ++told;
        EXPECT_THAT(error, throws(ErrorKind::mismatch, rank_name(world - 1)));
        EXPECT_THAT(error, throws(ErrorKind::mismatch, name_of(common.collective)));
        EXPECT_THAT(error, throws(ErrorKind::mismatch, name_of(other.collective)));
        EXPECT_FALSE(error->flight_record().empty());
      } else {
        EXPECT_FALSE(connected()) << name_of(error->kind()) << ": " << error->what();
      }
      // Of two ranks neither has anything that it could have used.
      if (world == 2) run.check_unused();
    });
    return told;
  }
};

TEST_P(Mismatch, of_sizes_is_refused) {
  for (const Rank world : {2, 4})
    for (const std::string algorithm : {"ring", "one_round", "halving_doubling", "direct"})
      expect_refused(world, {.algorithm = algorithm, .count = 100}, {.algorithm = algorithm, .count = 101});
}

TEST_P(Mismatch, of_sizes_is_refused_even_if_one_is_empty) { expect_refused(2, {.count = 100}, {.count = 0}); }

TEST_P(Mismatch, of_types_is_refused) {
  for (const Rank world : {2, 3}) expect_refused(world, {.count = 64}, {.count = 64, .dtype = DType::i32});
}

TEST_P(Mismatch, of_operators_is_refused) {
  for (const Rank world : {2, 3}) expect_refused(world, {.count = 64}, {.count = 64, .op = ReduceOp::max});
}

TEST_P(Mismatch, of_collectives_is_refused) {
  expect_refused(2, {.collective = Collective::all_reduce, .count = 64},
                 {.collective = Collective::all_gather, .count = 64});
  expect_refused(3, {.collective = Collective::all_to_all, .count = 64},
                 {.collective = Collective::reduce_scatter, .count = 64});
}

TEST_P(Mismatch, of_priorities_is_told) {
  if (!connected()) GTEST_SKIP() << "without a control plane only the deadline ends this";
  for (const int least : {0, 1}) {
    std::atomic<int> told = 0;
    run(2, [&](Communicator& comm) {
      std::vector<float> data(64, 1);
      const auto error = error_of([&] { comm.all_reduce(data, {.timeout = 60s, .priority = least + comm.rank()}); });
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "priority " + std::to_string(least + 1)));
      ++told;
    });
    EXPECT_EQ(told, 2);
  }
}

// The root sends on one lane and ends, the other waits on another one: what both have called tells it.
TEST_P(Mismatch, of_priorities_of_a_broadcast_is_told) {
  if (!connected()) GTEST_SKIP() << "without a control plane only the deadline ends this";
  std::atomic<int> told = 0;
  run(2, [&](Communicator& comm) {
    std::vector<float> data(64, 1);
    const auto error = error_of([&] {
      comm.broadcast(data, 0, {.timeout = 60s, .priority = 1 + comm.rank()});
      comm.barrier({.timeout = 60s});
    });
    EXPECT_THAT(error, throws(ErrorKind::mismatch, "priority"));
    ++told;
  });
  EXPECT_EQ(told, 2);
}

// Two roots of a broadcast both send and do not look. What they do next shows it, whatever that is.
TEST_P(Mismatch, of_roots_is_refused_by_the_next_operation_of_any_kind) {
  using Next = std::function<void(Communicator&, std::vector<float>&)>;
  const std::vector<Next> all{
      [&](Communicator& comm, std::vector<float>&) { comm.barrier({.timeout = patience()}); },
      [&](Communicator& comm, std::vector<float>& data) { comm.all_reduce(data, {.timeout = patience()}); },
      [&](Communicator& comm, std::vector<float>& data) { comm.broadcast(data, 1, {.timeout = patience()}); },
      [&](Communicator& comm, std::vector<float>& data) {
        if (comm.rank() == 0)
          comm.start_send(data, 1, 7, patience()).wait();
        else
          comm.start_recv(data, 0, 7, patience()).wait();
        comm.barrier({.timeout = patience()});  // rank 0 only had to send
      }};
  for (const Next& next : all) {
    std::atomic<int> told = 0;
    run(2, [&](Communicator& comm) {
      std::vector<float> data(64, 1);
      const auto error = error_of([&] {
        for (int i = 0; i < 3; ++i) comm.barrier();
        comm.broadcast(data, comm.rank());
        next(comm, data);
        comm.barrier({.timeout = patience()});  // likewise
      });
      ASSERT_TRUE(error);
      if (error->kind() == ErrorKind::mismatch) {
        ++told;
        EXPECT_THAT(error, throws(ErrorKind::mismatch, "rank 0"));
        EXPECT_THAT(error, throws(ErrorKind::mismatch, "rank 1"));
        EXPECT_THAT(error, throws(ErrorKind::mismatch, "broadcast #"));
      }
      EXPECT_EQ(data, std::vector<float>(64, 1));
    });
    EXPECT_GE(told, connected() ? 2 : 1);
  }
}

// Where nothing comes next, leaving shows it: to all, unless one is kept from its core for so long that the other has
// gone, and then still to that one.
TEST_P(Mismatch, of_roots_is_told_at_the_end) {
  if (!connected()) GTEST_SKIP() << "without a control plane nobody is told";
  int most_told = 0;
  for (int attempt = 0; attempt < 10 && most_told < 2; ++attempt) {
    std::atomic<int> told = 0;
    std::latch called(2);
    run(2, [&](Communicator& comm) {
      std::vector<float> data(64, 1);
      comm.barrier();
      comm.broadcast(data, comm.rank());
      called.arrive_and_wait();
      const auto error = error_of([&] { comm.leave(); });
      if (!error) return;
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "rank 0"));
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "root 1"));
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "broadcast #"));
      EXPECT_THAT(error->flight_record(), testing::HasSubstr("broadcast"));
      ++told;
      EXPECT_FALSE(error_of([&] { comm.leave(); })) << "once is enough";
      EXPECT_TRUE(error_of([&] { comm.barrier(); }));
    });
    EXPECT_GE(told, 1);
    most_told = std::max(most_told, told.load());
  }
  EXPECT_EQ(most_told, 2);
}

// Messages are in no order with collectives: a rank that is ahead of another, or behind, does nothing wrong.
TEST_P(Mismatch, is_not_seen_in_ranks_that_are_ahead) {
  run(3, [&](Communicator& comm) {
    const Rank other = 1 - comm.rank();
    for (int round = 0; round < 20; ++round) {
      std::vector<float> data(16, static_cast<float>(comm.rank()));
      std::vector<float> got(16);
      std::vector<Work> work;
      if (comm.rank() < 2 && round % 2 == comm.rank()) {
        work.push_back(comm.start_send(data, other));
        work.push_back(comm.start_recv(got, other));
      }
      comm.broadcast(got, 2);
      std::vector<float> sum(3, 1);
      comm.all_reduce(sum);
      std::vector<float> received(16);
      if (comm.rank() < 2 && round % 2 != comm.rank()) {
        work.push_back(comm.start_send(data, other));
        work.push_back(comm.start_recv(received, other));
      }
      for (Work& each : work) each.wait();
    }
    comm.leave();
  });
}

TEST_P(Mismatch, of_labels_is_refused_where_both_ranks_have_one) {
  const auto difference = [&](const CallLabel& ours, const CallLabel& theirs, std::string_view word) {
    std::atomic<int> told = 0;
    std::latch ended(2);
    run(2, [&](Communicator& comm) {
      std::vector<float> data(8, 1);
      const auto error = error_of([&] {
        comm.run({.input = data, .output = data, .timeout = patience(), .label = comm.rank() == 0 ? ours : theirs});
      });
      // Who leaves tells of its calls, by labels too, which must not reach the other while that is in this one.
      if (connected()) ended.arrive_and_wait();
      if (!error || error->kind() != ErrorKind::mismatch) return;
      ++told;
      EXPECT_THAT(error, throws(ErrorKind::mismatch, word));
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "all_reduce #"));
    });
    return told.load();
  };
  const int refused = connected() ? 2 : 1;
  EXPECT_GE(difference({.element = 7}, {.element = 10}, "element type 10"), refused);
  EXPECT_GE(difference({.list = 2}, {.list = 3}, "of a list of 3"), refused);
  EXPECT_GE(difference({.shape = 1}, {.shape = 2}, "the shapes of rank"), refused);
  EXPECT_EQ(difference({.element = 7}, {}, ""), 0);
  EXPECT_EQ(difference({}, {.list = 3}, ""), 0);
  EXPECT_EQ(difference({.shape = 1}, {.element = 7}, ""), 0);
}

TEST_P(Mismatch, of_shapes_is_refused_where_all_parts_have_one) {
  const auto told = [&](Collective collective, bool uneven) {
    std::atomic<int> count = 0;
    run(2, [&](Communicator& comm) {
      std::vector<float> parts(8, 1), part(4, 1);
      std::vector<float> others(8);
      const bool gathers = collective == Collective::all_gather;
      const bool exchanges = collective == Collective::all_to_all;
      const std::vector<std::size_t> splits(uneven ? 2 : 0, 4);
      const auto error = error_of([&] {
        comm.run({.collective = collective,
                  .input = gathers ? part : parts,
                  .output = exchanges ? others
                            : gathers ? parts
                                      : part,
                  .input_splits = gathers ? std::span<const std::size_t>() : splits,
                  .output_splits = gathers ? splits : std::span<const std::size_t>(),
                  .timeout = patience(),
                  .label = {.shape = static_cast<std::uint16_t>(comm.rank() + 1)}});
      });
      if (!error || error->kind() != ErrorKind::mismatch) return;
      ++count;
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "the shapes of rank"));
    });
    return count.load();
  };
  EXPECT_GE(told(Collective::all_to_all, false), connected() ? 2 : 1);
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    EXPECT_GE(told(collective, false), connected() ? 2 : 1) << name_of(collective);
    EXPECT_EQ(told(collective, true), 0) << name_of(collective);
  }
}

TEST_P(Mismatch, of_labels_of_messages_is_refused) {
  std::atomic<int> told = 0;
  run(2, [&](Communicator& comm) {
    std::vector<float> data(8, 1);
    const auto error = error_of([&] {
      if (comm.rank() == 0)
        comm.start_send(data, 1, 0, patience(), {.element = 7}).wait();
      else
        comm.start_recv(data, 0, 0, patience(), {.element = 10}).wait();
      comm.barrier({.timeout = patience()});
    });
    ASSERT_TRUE(error);
    if (error->kind() != ErrorKind::mismatch) return;
    ++told;
    EXPECT_THAT(error, throws(ErrorKind::mismatch, "element type 7"));
  });
  EXPECT_GE(told, connected() ? 2 : 1);
}

// Each waits for what the other has no reason to send; only their control planes can tell.
TEST_P(Mismatch, of_ranks_that_wait_for_each_other_is_told) {
  if (!connected()) GTEST_SKIP() << "without a control plane only the deadline ends this";
  for (const Collective collective : {Collective::reduce, Collective::gather})
    for (const Rank world : {2, 3, 6}) {
      SCOPED_TRACE(world);
      std::atomic<int> told = 0;
      run(world, [&](Communicator& comm) {
        const CaseRun run({.collective = collective, .count = 8, .root = comm.rank() == 1 ? 1 : 0}, comm);
        Request request = run.request();
        request.timeout = 60s;
        const auto error = error_of([&] {
          comm.run(request);
          comm.barrier({.timeout = 60s});  // for those who only had to send
        });
        EXPECT_THAT(error, throws(ErrorKind::mismatch, "root 1"));
        EXPECT_THAT(error, throws(ErrorKind::mismatch, name_of(collective)));
        ++told;
      });
      EXPECT_EQ(told, world);
    }
}

TEST_P(Mismatch, of_algorithms_is_refused) {
  expect_refused(3, {.algorithm = "ring", .count = 64}, {.algorithm = "direct", .count = 64});
}

// Where trees differ a rank waits for another that has nothing for it, and is done.
TEST_P(Mismatch, of_algorithms_with_a_root_is_refused) {
  if (!connected()) GTEST_SKIP() << "without a control plane only the deadline ends this";
  for (const Collective collective : {Collective::reduce, Collective::broadcast})
    for (const char* other : {"binomial_tree", "direct"})
      for (const Rank root : {0, 2})
        expect_refused(3, {.collective = collective, .algorithm = "ring", .count = 64, .root = root},
                       {.collective = collective, .algorithm = other, .count = 64, .root = root});
}

TEST_P(Mismatch, of_dims_is_refused) {
  expect_refused(6, {.algorithm = "torus:2x3", .count = 64}, {.algorithm = "torus:3x2", .count = 64});
  expect_refused(4, {.algorithm = "hierarchical:2", .count = 64}, {.algorithm = "hierarchical:4", .count = 64});
  // Two whose hash of 8 bits was once the same.
  if (GetParam() == "loopback")
    expect_refused(32, {.algorithm = "mesh:2x2x2x2x2", .count = 64}, {.algorithm = "mesh:2x2x8", .count = 64});
}

TEST_P(Mismatch, of_parts_is_refused) {
  expect_refused(2, {.collective = Collective::all_gather, .count = 64},
                 {.collective = Collective::all_gather, .count = 65});
  expect_refused(2, {.collective = Collective::all_to_all, .count = 64},
                 {.collective = Collective::all_to_all, .count = 32});
}

// Ranks 2 and 3 are one subtree, of as many elements either way.
TEST_P(Mismatch, of_the_border_between_two_parts_of_a_subtree_is_refused) {
  if (!connected()) GTEST_SKIP() << "without a control plane only the deadline ends this";
  for (const Collective collective : {Collective::gather, Collective::scatter}) {
    std::atomic<int> told = 0;
    run(4, [&](Communicator& comm) {
      const bool is_root = comm.rank() == 0;
      const std::vector<std::size_t> splits =
          is_root ? std::vector<std::size_t>{1, 1, 3, 5} : std::vector<std::size_t>{1, 1, 4, 4};
      std::vector<float> part(splits[static_cast<std::size_t>(comm.rank())], 1), all(is_root ? 10 : 0, 1);
      const bool gathers = collective == Collective::gather;
      const std::vector<std::size_t> none;
      const auto error = error_of([&] {
        comm.run({.collective = collective,
                  .input = gathers ? part : all,
                  .output = gathers ? all : part,
                  .input_splits = gathers ? none : splits,
                  .output_splits = gathers ? splits : none,
                  .algorithm = "binomial_tree",
                  .timeout = 60s});
        comm.barrier({.timeout = 60s});
      });
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "the shapes of rank"));
      ++told;
    });
    EXPECT_EQ(told, 4);
  }
}

TEST_P(Mismatch, of_counts_is_refused_by_every_collective) {
  if (!connected()) GTEST_SKIP() << "without a control plane only the deadline ends this";
  for (const Collective collective : {Collective::broadcast, Collective::reduce, Collective::reduce_scatter,
                                      Collective::gather, Collective::scatter, Collective::all_to_all}) {
    const Case common{.collective = collective, .count = 64, .uneven = collective == Collective::all_to_all};
    Case other = common;
    other.count = 32;
    for (const Rank world : {2, 3}) expect_refused(world, common, other);
  }
}

TEST_P(Mismatch, of_order_is_refused) {
  std::atomic<int> told = 0;
  run(2, [&](Communicator& comm) {
    const CaseRun reducing({.collective = Collective::all_reduce, .count = 64}, comm);
    const CaseRun gathering({.collective = Collective::all_gather, .count = 64}, comm);
    Request first = comm.rank() == 0 ? reducing.request() : gathering.request();
    Request second = comm.rank() == 0 ? gathering.request() : reducing.request();
    if (!connected()) first.timeout = second.timeout = patience();
    const auto error = error_of([&] {
      comm.run(first);
      comm.run(second);
    });
    ASSERT_TRUE(error);
    if (error->kind() == ErrorKind::mismatch) {
      ++told;
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "all_gather"));
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "all_reduce"));
    }
    reducing.check_unused();
    gathering.check_unused();
  });
  EXPECT_GE(told, connected() ? 2 : 1);
}

TEST_P(Mismatch, finishes_the_communicator) {
  run(2, [&](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 5 : 6, 1);
    const auto first = error_of([&] { comm.all_reduce(data, {.timeout = patience()}); });
    ASSERT_TRUE(first);
    for (const auto& call : std::vector<std::function<void()>>{[&] { comm.all_reduce(data); }, [&] { comm.barrier(); },
                                                               [&] { comm.send(data, 1 - comm.rank()); },
                                                               [&] { comm.recv(data, 1 - comm.rank()); }}) {
      const auto later = error_of(call);
      ASSERT_TRUE(later);
      EXPECT_EQ(later->kind(), first->kind());
      EXPECT_EQ(later->culprit(), first->culprit());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Mismatch, testing::ValuesIn(support::all_ways()), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
