// Codes between nodes only: everybody ends with the mean of all ranks, and the same bits, whatever finishes when.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using support::run_ranks;

// The communicators that a node_exchange needs, and what each of its ranks takes part in.
struct Nodes {
  std::unique_ptr<Communicator> inside;
  std::unique_ptr<Communicator> first;
  double share = 1;
  std::uint64_t layout = 7;

  // `node`: of each rank.
  Nodes(Communicator& comm, const std::vector<int>& node) {
    const auto own = static_cast<std::size_t>(comm.rank());
    const auto size = std::ranges::count(node, node[own]);
    inside = comm.split(size > 1 ? node[own] : -1);
    const bool is_first = std::ranges::find(node, node[own]) - node.begin() == comm.rank();
    first = comm.split(is_first ? 0 : -1);
    const auto nodes = std::ranges::max(node) + 1;
    share = static_cast<double>(size) * nodes / static_cast<double>(node.size());
  }
  std::unique_ptr<Exchange> exchange(const std::string& spec) const {
    return node_exchange(spec, {.inside = inside.get(), .across = first.get(), .share = share, .layout = layout});
  }
};

const std::vector<std::vector<int>> all_worlds{{0, 1, 1, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 2, 2}};
const auto tried_worlds = std::span(all_worlds).first(support::sanitized ? 1 : all_worlds.size());

TEST(NodeExchange, GivesTheMeanOfAllRanksAndTheSameBits) {
  for (const auto& node : tried_worlds)
    run_ranks(static_cast<Rank>(node.size()),
              [&](Communicator& comm) {
                const Nodes nodes(comm, node);
                for (const std::string spec :
                     {"none", "bf16", "int8:block=32", "lossless", "topk:0.5+int8", "powersgd:4", "thc"}) {
                  const auto exchange = nodes.exchange(spec);
                  EXPECT_EQ(exchange->spec(), spec);
                  for (const std::size_t count : {1U, 5U, 1000U, 70'000U}) {
                    auto bucket = gradients(comm.rank(), count);
                    const std::vector<Tensor> tensors{{.id = count, .rows = count}};
                    exchange->start({.values = bucket, .tensors = tensors})->wait();
                    expect_equal_everywhere(comm, bucket);
                    if (spec != "none" && spec != "lossless" && spec != "int8:block=32") continue;
                    const auto exact = exact_sum(comm.world(), count);
                    for (std::size_t i = 0; i < count; ++i)
                      ASSERT_NEAR(bucket[i], exact[i] / comm.world(), spec == "int8:block=32" ? 2.1 * 6.0 / 254 : 1e-5)
                          << spec << ", value " << i << " of " << count;
                  }
                }
              },
              {.way = "shm"});
}

// The last buckets are the smallest and most urgent, so that they overtake others inside a node, by chance on each in
// another way. Nobody waits in order, or at all before the end.
TEST(NodeExchange, BucketsThatOvertakeEachOtherMeetTheirLikes) {
  for (const auto& node : tried_worlds)
    run_ranks(static_cast<Rank>(node.size()),
              [&](Communicator& comm) {
                const Nodes nodes(comm, node);
                const auto exchange = nodes.exchange("int8");
                for (int step = 0; step < (support::sanitized ? 3 : 10); ++step) {
                  std::vector<std::vector<float>> buckets;
                  std::vector<std::shared_ptr<Averaging>> under_way;
                  std::atomic<int> called = 0;
                  for (std::size_t i = 0; i < 12; ++i)
                    buckets.push_back(std::vector<float>(
                        200'000 >> i, static_cast<float>(comm.rank() + 1) * static_cast<float>(i + 1)));
                  for (std::size_t i = 0; i < buckets.size(); ++i) {
                    under_way.push_back(exchange->start({.values = buckets[i], .priority = static_cast<int>(i)}));
                    under_way.back()->on_done([&] { ++called; });
                  }
                  std::thread other([&] { under_way[5]->wait(); });
                  for (std::size_t i = buckets.size(); i-- > 0;) under_way[i]->wait();
                  other.join();
                  for (std::size_t i = 0; i < buckets.size(); ++i) {
                    const float mean = static_cast<float>(comm.world() + 1) / 2 * static_cast<float>(i + 1);
                    for (const float each : buckets[i]) ASSERT_NEAR(each, mean, mean / 50) << "bucket " << i;
                    EXPECT_TRUE(under_way[i]->done());
                    EXPECT_EQ(under_way[i]->error(), nullptr);
                  }
                  while (called < static_cast<int>(buckets.size())) std::this_thread::yield();
                }
              },
              {.way = "shm"});
}

TEST(NodeExchange, WhatANodeOwesIsSavedByItsFirstRank) {
  const std::vector<int> node{0, 0, 1, 1};
  run_ranks(4,
            [&](Communicator& comm) {
              const Nodes nodes(comm, node);
              auto exchange = nodes.exchange("topk:0.1+int8"), other = nodes.exchange("topk:0.1+int8");
              auto bucket = gradients(comm.rank(), 1000), again = bucket, saved = bucket;
              const std::vector<Tensor> tensors{{.id = 1, .rows = 1000}};
              const auto of = [&](std::vector<float>& values) { return Bucket{.values = values, .tensors = tensors}; };
              exchange->start(of(bucket))->wait();
              const auto kept = exchange->save(of(bucket));
              EXPECT_EQ(kept.empty(), comm.rank() % 2 == 1);
              EXPECT_EQ(exchange->state_bytes() > 0, comm.rank() % 2 == 0);
              other->restore(of(saved), kept);
              exchange->start(of(again))->wait();
              other->start(of(saved))->wait();
              EXPECT_EQ(again, saved);
            },
            {.way = "shm"});
}

// Whoever still has what was owed, nobody counts apart; an exchange over all ranks takes up what it can.
TEST(NodeExchange, OfOtherNodesAllBeginAnew) {
  run_ranks(
      4,
      [&](Communicator& comm) {
        const Nodes blocks(comm, {0, 0, 1, 1});
        Nodes turns(comm, {0, 1, 0, 1});
        turns.layout = 8;
        for (const std::string spec : {"topk:0.1+int8", "delta+int8", "powersgd:2", "thc", "int8", "randk:0.5+bf16"}) {
          const std::vector<Tensor> tensors{{.id = 1, .rows = 30, .columns = 30}};
          auto values = gradients(comm.rank(), 900);
          const Bucket bucket{.values = values, .tensors = tensors};
          const auto before = blocks.exchange(spec), other = turns.exchange(spec), flat = make_exchange(spec, comm);
          for (int step = 0; step < 3; ++step) before->start(bucket)->wait();
          const auto kept = before->save(bucket);
          if (!kept.empty()) {
            const auto again = blocks.exchange(spec);
            EXPECT_THROW(again->restore(bucket, ConstBytes(kept).first(kept.size() - 1)), Error) << spec;
            again->restore(bucket, kept);
            EXPECT_EQ(again->save(bucket), kept) << spec;
          }
          for (const auto& each : {other.get(), flat.get()}) {
            if (!kept.empty()) each->restore(bucket, kept);
            for (int step = 0; step < 2; ++step) each->start(bucket)->wait();
            expect_equal_everywhere(comm, values);
          }
        }
      },
      {.way = "shm"});
}

TEST(NodeExchange, WhatIsUnderWayWhenItEndsFails) {
  run_ranks(4,
            [&](Communicator& comm) {
              std::vector<float> first(100'000, 1), second(10, 1);
              std::vector<std::shared_ptr<Averaging>> under_way;
              {
                const Nodes nodes(comm, {0, 0, 1, 1});
                auto exchange = nodes.exchange("int8");
                if (comm.rank() != 3) {  // for whom the others wait
                  under_way.push_back(exchange->start(first));
                  under_way.push_back(exchange->start({.values = second, .priority = 1}));
                }
                exchange.reset();
              }
              for (const auto& each : under_way) EXPECT_THROW(each->wait(), Error);
            },
            {.way = "shm"});
}

TEST(NodeExchange, NobodyHangsWhereANodeIsLost) {
  for (const Rank lost : {1, 2}) {
    std::atomic<int> told = 0;
    run_ranks(4,
              [&](Communicator& comm) {
                const Nodes nodes(comm, {0, 0, 1, 1});
                const auto exchange = nodes.exchange("int8");
                std::vector<float> bucket(1000, 1);
                exchange->start(bucket)->wait();
                if (comm.rank() == lost) return;  // as a program that ends: its communicators are gone
                std::vector<float> second(200'000, 1);
                try {
                  for (int step = 0; step < 100; ++step) {
                    const auto one = exchange->start(bucket), other = exchange->start(second);
                    other->wait();
                    one->wait();
                  }
                  ADD_FAILURE() << "rank " << comm.rank() << " goes on";
                } catch (const Error&) {
                  ++told;
                }
              },
              {.way = "shm"});
    EXPECT_EQ(told, 3) << "rank " << lost << " is lost";
  }
}

}  // namespace
}  // namespace ranvier
