// send and recv: every message reaches the receive of its source and tag, whatever the order of the two.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "conformance/collective_case.h"
#include "conformance/errors.h"
#include "conformance/worlds.h"

namespace ranvier::conformance {
namespace {

class Messages : public Ways {};
class MessagesInAllWorlds : public Worlds {};

std::vector<std::int32_t> text(Rank from, Rank to, std::uint64_t tag, std::size_t count) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<std::int32_t>(i * 31 + tag * 7 + static_cast<std::size_t>(from * 100 + to));
  return values;
}

TEST_P(Messages, all_pairs_talk_at_once_in_all_sizes) {
  for (const Rank world : {2, 5})
    run(world, [](Communicator& comm) {
      constexpr std::array<std::size_t, 7> counts{0, 1, 3, 17, 1023, 4099, 70'001};
      std::deque<std::vector<std::int32_t>> memory;
      std::vector<Work> works;
      std::vector<std::pair<const std::vector<std::int32_t>*, std::vector<std::int32_t>>> expected;
      for (Rank peer = 0; peer < comm.world(); ++peer) {
        if (peer == comm.rank()) continue;
        for (const std::size_t count : counts) {
          memory.push_back(text(comm.rank(), peer, 0, count));
          works.push_back(comm.start_send(memory.back(), peer));
          memory.emplace_back(count);
          works.push_back(comm.start_recv(memory.back(), peer));
          expected.emplace_back(&memory.back(), text(peer, comm.rank(), 0, count));
        }
      }
      std::shuffle(works.begin(), works.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
      for (Work& work : works) work.wait();
      for (const auto& [got, want] : expected) EXPECT_EQ(*got, want);
    });
}

TEST_P(MessagesInAllWorlds, every_type_reaches_every_rank_at_every_size) {
  run([](Communicator& comm) {
    for (const DType dtype : all_dtypes) {
      std::deque<std::vector<std::byte>> memory;
      std::vector<Work> works;
      std::vector<std::pair<const std::vector<std::byte>*, std::vector<std::byte>>> expected;
      for (Rank peer = 0; peer < comm.world(); ++peer) {
        if (peer == comm.rank()) continue;
        for (const std::size_t count : {0, 1, 17, 1023}) {
          const auto message = [&](Rank from, Rank to) {
            return encode(dtype, values_of(dtype, ReduceOp::sum, from, 0, count, static_cast<std::size_t>(to)));
          };
          memory.push_back(message(comm.rank(), peer));
          works.push_back(comm.start_send({memory.back().data(), count, dtype}, peer, count));
          memory.emplace_back(count * size_of(dtype));
          works.push_back(comm.start_recv({memory.back().data(), count, dtype}, peer, count));
          expected.emplace_back(&memory.back(), message(peer, comm.rank()));
        }
      }
      for (Work& work : works) work.wait();
      for (const auto& [got, want] : expected) EXPECT_EQ(*got, want) << name_of(dtype);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, MessagesInAllWorlds, testing::ValuesIn(all_worlds(2)), name_of_world);

TEST_P(Messages, a_receive_of_at_most_so_much_says_how_much_came) {
  run(2, [](Communicator& comm) {
    constexpr std::array<std::size_t, 4> counts{0, 5, 999, 1000};
    if (comm.rank() == 0) {
      for (const std::size_t count : counts) comm.send(text(0, 1, 3, count), 1, 3);
      comm.send(text(0, 1, 4, 1001), 1, 4);
      return;
    }
    for (const std::size_t count : counts) {
      std::vector<std::int32_t> got(1000);
      Work work = comm.start_recv_at_most(got, 0, 3);
      work.wait();
      ASSERT_EQ(work.received_bytes(), count * sizeof(std::int32_t));
      got.resize(count);
      EXPECT_EQ(got, text(0, 1, 3, count));
    }
    std::vector<std::int32_t> too_short(1000);
    Work work = comm.start_recv_at_most(too_short, 0, 4);
    EXPECT_THROW(work.wait(), Error);
  });
}

TEST_P(Messages, tags_are_received_in_any_order_and_one_tag_in_the_order_of_its_sends) {
  run(2, [](Communicator& comm) {
    constexpr std::uint64_t tags = 5;
    constexpr std::size_t each = 3;
    if (comm.rank() == 0) {
      for (std::size_t i = 0; i < each; ++i)
        for (std::uint64_t tag = 0; tag < tags; ++tag) comm.send(text(0, 1, tag, 10 + i), 1, tag);
      return;
    }
    for (std::uint64_t tag = tags; tag-- > 0;)
      for (std::size_t i = 0; i < each; ++i) {
        std::vector<std::int32_t> got(10 + i);
        comm.recv(got, 0, tag);
        EXPECT_EQ(got, text(0, 1, tag, 10 + i));
      }
  });
}

TEST_P(Messages, a_receive_from_any_rank_says_who_sent) {
  run(4, [](Communicator& comm) {
    if (comm.rank() != 0) return comm.send(text(comm.rank(), 0, 5, 20), 0, 5);
    std::vector<Rank> sources;
    for (Rank i = 1; i < comm.world(); ++i) {
      std::vector<std::int32_t> got(20);
      Work work = comm.start_recv(got, Communicator::any_rank, 5);
      work.wait();
      EXPECT_EQ(got, text(work.source(), 0, 5, 20));
      sources.push_back(work.source());
    }
    EXPECT_THAT(sources, testing::UnorderedElementsAre(1, 2, 3));
  });
}

TEST_P(Messages, receives_from_any_rank_and_from_one_share_what_comes) {
  run(3, [](Communicator& comm) {
    if (comm.rank() != 0) {
      comm.send(text(comm.rank(), 0, 1, 4), 0, 1);
      return comm.send(text(comm.rank(), 0, 1, 4), 0, 1);
    }
    std::array<std::vector<std::int32_t>, 4> got;
    got.fill(std::vector<std::int32_t>(4));
    std::array<Work, 4> works{comm.start_recv(got[0], 2, 1), comm.start_recv(got[1], Communicator::any_rank, 1),
                              comm.start_recv(got[2], 1, 1), comm.start_recv(got[3], Communicator::any_rank, 1)};
    std::vector<Rank> sources;
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      sources.push_back(works[i].source());
      EXPECT_EQ(got[i], text(works[i].source(), 0, 1, 4));
    }
    EXPECT_EQ(sources[0], 2);
    EXPECT_EQ(sources[2], 1);
    EXPECT_THAT(sources, testing::UnorderedElementsAre(1, 1, 2, 2));
  });
}

TEST_P(Messages, and_collectives_do_not_order_one_another) {
  run(3, [](Communicator& comm) {
    const Rank next = (comm.rank() + 1) % comm.world();
    const Rank previous = (comm.rank() + comm.world() - 1) % comm.world();
    std::vector<std::int32_t> late(3000);
    Work receiving = comm.start_recv(late, previous, 7);
    for (std::size_t salt = 0; salt < 12; ++salt) run_case(comm, {.count = 500 * salt, .salt = salt});
    comm.send(text(comm.rank(), next, 7, 3000), next, 7);
    run_case(comm, {.collective = Collective::all_gather, .count = 100});
    receiving.wait();
    EXPECT_EQ(late, text(previous, comm.rank(), 7, 3000));
  });
}

TEST_P(Messages, of_another_size_or_type_than_their_receive_are_refused_by_name) {
  for (const bool other_size : {true, false})
    run(2, [&](Communicator& comm) {
      if (comm.rank() == 0) {
        std::vector<std::int32_t> sent(8, 1);
        // What becomes of the sender is seen with its next collective.
        error_of([&] { comm.send(sent, 1, 3); });
        error_of([&] { comm.barrier({.timeout = patience()}); });
        return;
      }
      std::vector<std::int32_t> shorter(7, -1);
      std::vector<float> floats(8, -1);
      const auto error = error_of([&] {
        if (other_size)
          comm.recv(shorter, 0, 3);
        else
          comm.recv(floats, 0, 3);
      });
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "rank 0 sent 32 B of i32"));
      EXPECT_THAT(error, throws(ErrorKind::mismatch, "rank 1 expects"));
      EXPECT_EQ(shorter, std::vector<std::int32_t>(7, -1));
      EXPECT_EQ(floats, std::vector<float>(8, -1));
    });
}

TEST_P(Messages, to_oneself_or_to_nobody_are_refused) {
  run(2, [](Communicator& comm) {
    std::vector<float> data(1);
    EXPECT_THAT(error_of([&] { comm.send(data, comm.rank()); }), throws(ErrorKind::usage, "send"));
    EXPECT_THAT(error_of([&] { comm.send(data, 2); }), throws(ErrorKind::usage, "rank 2"));
    EXPECT_THAT(error_of([&] { comm.recv(data, -2); }), throws(ErrorKind::usage, "rank -2"));
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(, Messages, testing::ValuesIn(support::all_ways()), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
