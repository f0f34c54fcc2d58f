#include "engine/calls.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

CallSettings settings(Rank world, std::string algorithm) {
  return {.world = world, .algorithm = std::move(algorithm), .slice_bytes = 4096, .buffered_bytes = 4096};
}

std::string_view algorithm_of(const CollectiveCall& call) { return algorithms()[call.header.algorithm].name; }

TEST(Calls, KnowARequestAgainByItsAlgorithmAndDims) {
  Calls calls(settings(8, "auto"));
  std::array<float, 16> data{};
  const auto request = [&](std::string_view algorithm) {
    return Request{.input = data, .output = data, .algorithm = algorithm};
  };
  const RequestKey key = calls.key_of(request("torus:2x4"));
  EXPECT_TRUE(calls.serves(key, request("torus:2x4")));
  for (const char* const other : {"torus:4x2", "torus", "mesh:2x4", "ring", "auto", ""})
    EXPECT_FALSE(calls.serves(key, request(other))) << other;
  const CollectiveCall call = calls.prepare(request("torus:2x4"));
  EXPECT_EQ(calls.prepare(request("torus:2x4")).program, call.program);
  EXPECT_NE(calls.prepare(request("torus:4x2")).program, call.program);
  EXPECT_NE(calls.prepare(request("torus:4x2")).header.root_or_dims, call.header.root_or_dims);
  EXPECT_EQ(calls.prepare(request("torus")).header.root_or_dims, 0U);
}

TEST(Calls, AwaitSeveralSlicesWhereWhatWasSentLastsForLonger) {
  std::vector<float> data(1 << 20);
  const auto awaited = [&](const std::string& algorithm, std::size_t ahead_bytes) {
    CallSettings ahead = settings(2, algorithm);
    ahead.ahead_bytes = ahead_bytes;
    return CollectiveOperation(Calls(ahead).prepare({.input = data, .output = data})).expects();
  };
  EXPECT_EQ(awaited("ring", 0)->bytes, 4096U);
  EXPECT_EQ(awaited("ring", 128 << 10)->bytes, 16'384U);
  EXPECT_EQ(awaited("double_binary_tree", 128 << 10)->bytes, 4096U);
}

TEST(Calls, LendWhereThatIsFasterThanCopying) {
  class NoMemory final : public PeerMemory {
    std::shared_ptr<std::byte[]> allocate(std::size_t) override { return {}; }
    std::size_t try_lend(Rank, Lane, ConstBytes, ConstBytes, bool) override { return 0; }
    std::size_t lent(Rank, Lane) override { return 0; }
  } memory;
  const auto lends = [&](std::size_t bytes, bool crowded) {
    CallSettings shared = settings(2, "direct");
    shared.slice_bytes = shared.buffered_bytes = 128 << 10;
    shared.peer_memory = &memory;
    shared.links.crowded = crowded;
    std::vector<float> data(bytes / sizeof(float));
    return Calls(shared).prepare({.input = data, .output = data}).lender != nullptr;
  };
  // Each of two ranks sends the other a half of what is to be summed, and a half of the sum.
  EXPECT_TRUE(lends(PeerMemory::least_to_one, false));
  EXPECT_FALSE(lends(PeerMemory::least_to_one - 4096, false)) << "while both copy at once";
  EXPECT_TRUE(lends(2 * PeerMemory::least_lent, true));
  EXPECT_FALSE(lends(2 * PeerMemory::least_lent - 8, true));
}

TEST(Calls, TryTheOtherWayWhereTheClockCanTell) {
  const auto world = loopback_world(2);
  const auto tries = [&](bool answered, bool crowded, std::size_t bytes) {
    CallSettings shared = settings(2, "direct");
    shared.slice_bytes = shared.buffered_bytes = 128 << 10;
    shared.peer_memory = world[0]->peer_memory();
    shared.answers = answered ? world[0]->answers_in_place() : nullptr;
    shared.links.crowded = crowded;
    std::vector<float> data(bytes / sizeof(float));
    return Calls(shared).prepare({.input = data, .output = data}).lending != nullptr;
  };
  EXPECT_TRUE(tries(true, false, PeerMemory::least_to_one));
  EXPECT_FALSE(tries(true, false, PeerMemory::least_to_one - 4096)) << "which are never lent";
  EXPECT_FALSE(tries(true, true, PeerMemory::least_to_one)) << "where ranks share cores";
  EXPECT_FALSE(tries(false, false, PeerMemory::least_to_one)) << "where copies are not answered in place";
}

TEST(Calls, TellPeriodsApart) {
  Calls calls(settings(8, "auto"));
  std::array<float, 16> input{}, output{};
  const auto dims_of = [&](std::string_view algorithm) {
    return calls
        .prepare(
            {.collective = Collective::neighbor_exchange, .input = input, .output = output, .algorithm = algorithm})
        .header.root_or_dims;
  };
  const std::array hashes{dims_of("neighbor_exchange:2x4"),
                          dims_of("neighbor_exchange:2x4,periods=0x1"),
                          dims_of("neighbor_exchange:2x4,periods=1x0"),
                          dims_of("neighbor_exchange:2x4,periods=1x1"),
                          dims_of("neighbor_exchange:8"),
                          dims_of("")};
  for (std::size_t i = 0; i < hashes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(hashes[i], hashes[j]) << i << " and " << j;
}

TEST(Calls, TellSizesOfPartsApart) {
  Calls calls(settings(2, "auto"));
  std::array<float, 8> input{}, output{};
  const auto program_for = [&](const std::vector<std::size_t>& sent, const std::vector<std::size_t>& received) {
    return calls
        .prepare({.collective = Collective::all_to_all,
                  .input = input,
                  .output = output,
                  .input_splits = sent,
                  .output_splits = received})
        .program;
  };
  const auto first = program_for({3, 5}, {3, 5});
  EXPECT_EQ(program_for({3, 5}, {3, 5}), first);
  EXPECT_NE(program_for({5, 3}, {5, 3}), first);
  EXPECT_NE(program_for({}, {}), first);
  EXPECT_THROW(program_for({3, 5}, {2, 6}), Error) << "what a rank keeps for itself has one size";
}

// All ranks know how much there is in all, and so what auto takes: the same as for even parts of that much.
TEST(Calls, ChooseForUnevenPartsOfARootByTheirSum) {
  CallSettings many = settings(16, "auto");
  many.transport = "tcp";
  many.links = {.latency = 1, .message = 10, .byte = 1};
  many.rank = 1;
  Calls calls(many);
  std::vector<float> two(2), three(3);
  const TypedSpan none(nullptr, 0, DType::f32);
  std::vector<std::size_t> splits(16, 2);
  splits[1] = 3;
  splits[2] = 1;
  for (const bool gathers : {true, false}) {
    const auto request = [&](std::vector<float>& part, const std::vector<std::size_t>& sizes) {
      return gathers ? Request{.collective = Collective::gather, .input = part, .output = none, .output_splits = sizes}
                     : Request{.collective = Collective::scatter, .input = none, .output = part, .input_splits = sizes};
    };
    const std::vector<std::size_t> even;
    EXPECT_EQ(algorithm_of(calls.prepare(request(two, even))), "binomial_tree");
    EXPECT_EQ(algorithm_of(calls.prepare(request(three, splits))), "binomial_tree");
  }
}

// A rank that gives sizes knows those of its own parts only, which may be even where another's are not.
TEST(Calls, ChooseTheSameForAllExchangesWithGivenSizes) {
  CallSettings many = settings(16, "auto");
  many.transport = "tcp";
  many.links = {.latency = 1000, .message = 1000, .byte = 1};
  Calls calls(many);
  std::vector<float> from(16), to(16);
  const std::vector<std::size_t> ones(16, 1), none;
  std::vector<std::size_t> uneven = ones;
  uneven[3] = 0;
  uneven[4] = 2;
  const auto algorithm_for = [&](const std::vector<std::size_t>& splits) {
    return algorithm_of(calls.prepare({.collective = Collective::all_to_all,
                                       .input = from,
                                       .output = to,
                                       .input_splits = splits,
                                       .output_splits = splits}));
  };
  EXPECT_EQ(algorithm_for(ones), "direct");
  EXPECT_EQ(algorithm_for(uneven), "direct");
  EXPECT_EQ(algorithm_for(none), "bruck") << "no rank has given any";
}

TEST(Calls, TakeTheirOwnAlgorithmWithItsDims) {
  std::array<float, 16> data{};
  const Request request{.input = data, .output = data};
  Calls own(settings(8, "torus:2x4"));
  Calls named(settings(8, "auto"));
  Request by_name = request;
  by_name.algorithm = "torus:2x4";
  EXPECT_EQ(own.prepare(request).header, named.prepare(by_name).header);
}

TEST(Calls, RefuseAnAlgorithmThatNeedsALinkThatIsNotThere) {
  CallSettings on_mesh = settings(8, "auto");
  on_mesh.transport = "tcp";
  on_mesh.links = {.latency = 1};
  on_mesh.topology = std::make_shared<const Topology>(make_topology("mesh:2x4", 8));
  Calls calls(on_mesh);
  std::array<float, 16> data{};
  const auto refusal = [&](std::string_view algorithm) -> std::string {
    try {
      calls.prepare({.input = data, .output = data, .algorithm = algorithm});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("mesh:2x4"), "");
  EXPECT_EQ(refusal("auto"), "");
  EXPECT_EQ(refusal("ring"),
            "all_reduce by ring needs a link that is not there: in round 0 rank 3 sends to rank 4, and topology "
            "mesh:2x4 has no link between them, only a way of 4 links through rank 2; name an algorithm that keeps to "
            "neighbours, leave the choice to auto, or leave out the topology");
  EXPECT_NE(refusal("direct"), "");
  EXPECT_NE(refusal("mesh:4x2"), "");
  EXPECT_NE(refusal("ring"), "") << "and again";
}

CallSettings on(const char* topology, Rank world) {
  CallSettings result = settings(world, "auto");
  result.transport = "tcp";
  result.links = {.latency = 1};  // fewest rounds: where all links were alike, "direct" would be the cheapest
  result.topology = std::make_shared<const Topology>(make_topology(topology, world));
  return result;
}

// Of every rank and both collectives: all take the same, and send to neighbours alone.
TEST(Calls, KeepUnevenPartsToTheLinksOfATopology) {
  for (const auto& [topology, world] : {std::pair{"mesh:2x4", 8}, {"torus:2x4", 8}, {"ring", 5}, {"mesh:3x4", 12}})
    for (const bool gathers : {true, false}) {
      std::string_view chosen;
      for (Rank rank = 0; rank < world; ++rank) {
        SCOPED_TRACE(testing::Message() << topology << ", rank " << rank);
        CallSettings grid = on(topology, world);
        grid.rank = rank;
        std::vector<std::size_t> splits(static_cast<std::size_t>(world), 2);
        splits[1] = 5;
        std::vector<float> part(splits[static_cast<std::size_t>(rank)]), all(static_cast<std::size_t>(2 * world + 3));
        Calls calls(grid);
        const CollectiveCall call = calls.prepare(
            gathers
                ? Request{.collective = Collective::all_gather, .input = part, .output = all, .output_splits = splits}
                : Request{
                      .collective = Collective::reduce_scatter, .input = all, .output = part, .input_splits = splits});
        if (rank == 0) chosen = algorithm_of(call);
        EXPECT_EQ(algorithm_of(call), chosen);
        for (const auto& [peer, bytes] : call.program->bytes_to)
          EXPECT_EQ(grid.topology->path(rank, peer).size(), 1U) << algorithm_of(call) << " sends to rank " << peer;
      }
    }
}

// Each rank has something for every other one: there is no algorithm of neighbours alone.
TEST(Calls, LetOthersForwardWhereNoAlgorithmKeepsToTheLinks) {
  Calls calls(on("mesh:4", 4));
  std::array<float, 10> input{}, output{};
  const std::vector<std::size_t> splits{1, 2, 3, 4};
  EXPECT_EQ(algorithm_of(calls.prepare({.collective = Collective::all_to_all,
                                        .input = input,
                                        .output = output,
                                        .input_splits = splits,
                                        .output_splits = splits})),
            "direct");
}

// A chain from rank 0, or to rank 3, ends where the line does; of any other root it goes around. Then all that there is
// counts. On a ring Bine trees of four ranks are trees of neighbours, whatever the root.
TEST(Calls, KeepToTheLinksOfATopologyByRoot) {
  Calls on_line(on("mesh:4", 4)), on_ring(on("ring", 4));
  std::array<float, 16> data{};
  for (const Collective collective : {Collective::broadcast, Collective::reduce})
    for (const Rank root : {0, 2, 3}) {
      SCOPED_TRACE(testing::Message() << name_of(collective) << ", root " << root);
      const Request request{.collective = collective, .input = data, .output = data, .root = root};
      EXPECT_EQ(algorithm_of(on_line.prepare(request)),
                root == (collective == Collective::broadcast ? 0 : 3) ? "ring" : "direct");
      EXPECT_EQ(algorithm_of(on_ring.prepare(request)), "bine_tree");
    }
}

TEST(Calls, RefuseARowThatNeedsALinkThatIsNotThere) {
  CallSettings tuned = on("mesh:4", 4);
  tuned.tuning = TuningTable::parse(
      "all_reduce tcp 4 32 mesh:4\nall_reduce tcp 4 max ring\nbroadcast tcp 4 max ring\nall_to_all tcp 4 max "
      "round_robin\n",
      "its text");
  Calls calls(tuned);
  std::array<float, 8> small{}, other{};
  std::array<float, 16> large{};
  EXPECT_EQ(algorithm_of(calls.prepare({.input = small, .output = small})), "mesh");
  try {
    calls.prepare({.input = large, .output = large});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(),
                 "all_reduce by ring needs a link that is not there: in round 0 rank 3 sends to rank 0, and topology "
                 "mesh:4 has no link between them, only a way of 3 links through rank 2; make its row in the tuning "
                 "table one of auto, or leave out the topology");
  }
  // Where auto has to leave the links, too, a row may.
  const Request from_inside{.collective = Collective::broadcast, .input = small, .output = small, .root = 2};
  EXPECT_EQ(algorithm_of(calls.prepare(from_inside)), "ring");
  EXPECT_EQ(algorithm_of(calls.prepare({.collective = Collective::all_to_all, .input = small, .output = other})),
            "round_robin");
}

TEST(Calls, RefuseDimsThatDoNotSuitTheWorld) {
  try {
    const Calls calls(settings(6, "torus:2x4"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(),
                 "algorithm 'torus' was given a grid of 2x4, which has 8 ranks, but the world has 6; give dims that "
                 "multiply to 6");
  }
}

}  // namespace
}  // namespace ranvier::engine
