#include "engine/calls.h"

#include <gtest/gtest.h>

#include <array>
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
  EXPECT_NE(calls.prepare(request("torus:4x2")).header.dims, call.header.dims);
  EXPECT_EQ(calls.prepare(request("torus")).header.dims, 0);
}

TEST(Calls, TellPeriodsApart) {
  Calls calls(settings(8, "auto"));
  std::array<float, 16> input{}, output{};
  const auto dims_of = [&](std::string_view algorithm) {
    return calls
        .prepare(
            {.collective = Collective::neighbor_exchange, .input = input, .output = output, .algorithm = algorithm})
        .header.dims;
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
  const auto algorithm_of = [](const CollectiveCall& call) { return algorithms()[call.header.algorithm].name; };
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
