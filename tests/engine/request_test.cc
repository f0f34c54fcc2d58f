// What a request is refused for, and the shape that a good one has.
#include "engine/request.h"

#include <gmock/gmock.h>

#include <vector>

#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

using testing::HasSubstr;

std::string complaint(const Request& request, Rank rank = 0, Rank world = 4) {
  try {
    shape_of(request, rank, world);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(RequestTest, OneMemoryForInputAndOutputIsInPlace) {
  std::vector<float> data(12);
  EXPECT_TRUE(shape_of({.input = data, .output = data}, 0, 4).in_place);
  std::vector<float> other(12);
  EXPECT_FALSE(shape_of({.input = data, .output = other}, 0, 4).in_place);
}

TEST(RequestTest, AnInputAtItsOwnPartOfTheOutputIsInPlace) {
  std::vector<float> data(12);
  const auto part = [&](std::size_t offset) { return std::span(data).subspan(offset, 3); };
  EXPECT_TRUE(shape_of({.collective = Collective::all_gather, .input = part(6), .output = data}, 2, 4).in_place);
  EXPECT_THAT(complaint({.collective = Collective::all_gather, .input = part(5), .output = data}, 2),
              HasSubstr("overlap"));
  EXPECT_TRUE(shape_of({.collective = Collective::reduce_scatter, .input = data, .output = part(9)}, 3, 4).in_place);
}

TEST(RequestTest, SizesThatDoNotFitAreNamed) {
  std::vector<float> small(3), large(11);
  EXPECT_THAT(complaint({.collective = Collective::all_gather, .input = small, .output = large}),
              HasSubstr("4 x 3 = 12, and has 11"));
  EXPECT_THAT(complaint({.collective = Collective::all_reduce, .input = small, .output = large}),
              HasSubstr("f32 x 11"));
  EXPECT_THAT(complaint({.collective = Collective::all_to_all, .input = large, .output = large}),
              HasSubstr("cannot share evenly"));
}

TEST(RequestTest, MemoryThatIsNotThereIsNamed) {
  std::vector<float> data(3);
  const TypedSpan none(nullptr, 3, DType::f32), endless(data.data(), SIZE_MAX / 2, DType::f32);
  EXPECT_THAT(complaint({.input = none, .output = data}), HasSubstr("input has 3 elements and no memory"));
  EXPECT_THAT(complaint({.input = data, .output = none}), HasSubstr("output has 3 elements and no memory"));
  EXPECT_THAT(complaint({.input = endless, .output = endless}), HasSubstr("which no memory holds"));
}

// Whoever is not the root has one vector, which may be an empty one without memory, and the other as it was made.
TEST(RequestTest, TheTypeIsOfTheVectorThatARankHas) {
  std::vector<std::int64_t> none;
  const std::vector<std::size_t> splits{4, 0, 4, 4};
  const Request takes{.collective = Collective::scatter, .output = none, .input_splits = splits};
  EXPECT_EQ(dtype_of(takes), DType::i64);
  EXPECT_EQ(shape_of(takes, 1, 4).element_bytes, 8U);
  const Request gives{.collective = Collective::gather, .input = none, .output_splits = splits};
  EXPECT_EQ(dtype_of(gives), DType::i64);
  EXPECT_EQ(shape_of(gives, 1, 4).element_bytes, 8U);
}

TEST(RequestTest, TypesThatDifferAreNamed) {
  std::vector<float> floats(4);
  std::vector<double> doubles(4);
  EXPECT_THAT(complaint({.input = floats, .output = doubles}), HasSubstr("f64"));
  std::vector<float> part(1);
  for (const Collective collective : {Collective::all_gather, Collective::gather})
    EXPECT_THAT(complaint({.collective = collective, .input = part, .output = doubles}), HasSubstr("f64"));
  for (const Collective collective : {Collective::reduce_scatter, Collective::scatter})
    EXPECT_THAT(complaint({.collective = collective, .input = doubles, .output = part}), HasSubstr("f64"));
}

TEST(RequestTest, ARootOutsideTheWorldIsRefused) {
  std::vector<float> data(4);
  EXPECT_THAT(complaint({.collective = Collective::broadcast, .input = data, .output = data, .root = 4}),
              HasSubstr("root 4 is not in a world of 4"));
}

TEST(RequestTest, SplitsMustAddUp) {
  std::vector<float> part(2), whole(10);
  const std::vector<std::size_t> splits{2, 3, 4, 5}, few{2, 8};
  EXPECT_THAT(
      complaint({.collective = Collective::all_gather, .input = part, .output = whole, .output_splits = splits}),
      HasSubstr("add up to 14"));
  EXPECT_THAT(complaint({.collective = Collective::all_gather, .input = part, .output = whole, .output_splits = few}),
              HasSubstr("2 entries, and 4 ranks need 4"));
  const std::vector<std::size_t> others{1, 2, 3, 4};
  EXPECT_THAT(
      complaint({.collective = Collective::all_gather, .input = part, .output = whole, .output_splits = others}),
      HasSubstr("give rank 0 1 elements"));
}

// Also where the sum wraps around to the right one, and where this rank has nothing to compare it with.
TEST(RequestTest, SplitsThatNoMemoryHoldsAreNamed) {
  using enum Collective;
  std::vector<float> four(4), other(4);
  const std::vector<std::size_t> wrapping{4, SIZE_MAX - 3, 4, 0}, large(4, std::size_t{1} << 46);
  const auto expect_refused = [](const Request& request) {
    EXPECT_THAT(complaint(request), HasSubstr("which no memory holds")) << name_of(request.collective);
  };
  for (const auto& splits : {wrapping, large}) {
    expect_refused({.collective = all_to_all, .input = four, .output = other, .input_splits = splits});
    expect_refused({.collective = all_to_all, .input = four, .output = other, .output_splits = splits});
    expect_refused({.collective = all_gather, .input = four, .output = other, .output_splits = splits});
    expect_refused({.collective = reduce_scatter, .input = other, .output = four, .input_splits = splits});
    expect_refused({.collective = gather, .input = four, .root = 1, .output_splits = splits});
    expect_refused({.collective = scatter, .output = four, .root = 1, .input_splits = splits});
  }
  EXPECT_THAT(complaint({.collective = all_gather, .input = four, .output = other, .output_splits = wrapping}),
              HasSubstr("part 1 of output_splits has 18446744073709551612 elements and those before it 4,"));
}

// Inner ranks of a tree pass on parts of others.
TEST(RequestTest, SplitsOfGatherAndScatterAreForAllRanks) {
  std::vector<float> part(3);
  const std::vector<std::size_t> splits{2, 3, 0, 5}, few{2, 3};
  const TypedSpan none(nullptr, 0, DType::f32);
  const auto gather = [&](const std::vector<std::size_t>& sizes) {
    return Request{.collective = Collective::gather, .input = part, .output = none, .output_splits = sizes};
  };
  const auto scatter = [&](const std::vector<std::size_t>& sizes) {
    return Request{.collective = Collective::scatter, .input = none, .output = part, .input_splits = sizes};
  };
  const Shape gathered = shape_of(gather(splits), 1, 4);
  EXPECT_EQ(gathered.parts, splits);
  EXPECT_EQ(gathered.input_splits, std::vector<std::size_t>{3});
  EXPECT_TRUE(gathered.output_splits.empty());
  const Shape scattered = shape_of(scatter(splits), 1, 4);
  EXPECT_EQ(scattered.parts, splits);
  EXPECT_EQ(scattered.output_splits, std::vector<std::size_t>{3});
  EXPECT_TRUE(scattered.input_splits.empty());
  for (const Request& request : {gather(few), scatter(few)})
    EXPECT_THAT(complaint(request, 1), HasSubstr("2 entries, and 4 ranks need 4"));
  for (const Request& request : {gather(splits), scatter(splits)})
    EXPECT_THAT(complaint(request, 3), HasSubstr("give rank 3 5 elements"));
}

TEST(RequestTest, WhatARankKeepsInAnAllToAllHasOneSize) {
  std::vector<float> eight(8), four(4);
  const std::vector<std::size_t> sent{1, 2, 3, 2}, received{1, 3, 2, 2};
  std::vector<float> other(8);
  const Request uneven{.collective = Collective::all_to_all,
                       .input = eight,
                       .output = other,
                       .input_splits = sent,
                       .output_splits = received};
  EXPECT_EQ(shape_of(uneven, 0, 4).input_splits, sent);
  EXPECT_THAT(complaint(uneven, 1), HasSubstr("part 1 of the input has 2 elements and part 1 of the output 3"));
  EXPECT_THAT(complaint({.collective = Collective::all_to_all, .input = eight, .output = four}),
              HasSubstr("part 0 of the input has 2 elements"));
}

TEST(RequestTest, AllToAllNeverWorksInPlace) {
  std::vector<float> data(8);
  EXPECT_THAT(complaint({.collective = Collective::all_to_all, .input = data, .output = data}), HasSubstr("overlap"));
}

// Its grid is known only after its algorithm: so are its parts.
TEST(RequestTest, NeighborExchangeHasAPartForEachDirection) {
  std::vector<float> eight(8), six(6);
  const auto shape = [](const Request& request) {
    Shape found = shape_of(request, 1, 4);
    found.dims = {4, 1};
    found.periodic = {false, true};
    share_among_directions(found, request, 1);
    return found;
  };
  const auto complaint_about = [&](const Request& request) -> std::string {
    try {
      shape(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  using enum Collective;
  std::vector<float> other(8);
  EXPECT_EQ(shape({.collective = neighbor_exchange, .input = eight, .output = other}).count, 2u);
  const std::vector<std::size_t> splits{0, 2, 2, 2}, alike{2, 2, 2, 2}, few{3, 3}, other_own{1, 1, 1, 3};
  const Shape uneven = shape({.collective = neighbor_exchange, .input = six, .output = eight, .input_splits = splits});
  EXPECT_EQ(uneven.input_splits, splits);
  EXPECT_EQ(uneven.output_splits, alike);
  EXPECT_THAT(complaint_about({.collective = neighbor_exchange, .input = six, .output = eight}),
              HasSubstr("neighbor_exchange on rank 1: input has 6 elements, which 4 directions cannot share evenly"));
  EXPECT_THAT(complaint_about({.collective = neighbor_exchange, .input = six, .output = eight, .input_splits = few}),
              HasSubstr("2 entries, and 4 directions need 4"));
  EXPECT_THAT(
      complaint_about({.collective = neighbor_exchange, .input = six, .output = eight, .input_splits = other_own}),
      HasSubstr("part 2 of the input has 1 elements and part 3 of the output 2"));
  EXPECT_THAT(complaint_about({.collective = neighbor_exchange, .input = eight, .output = eight}),
              HasSubstr("overlap"));
}

}  // namespace
}  // namespace ranvier::engine
