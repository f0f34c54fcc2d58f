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

TEST(RequestTest, TypesThatDifferAreNamed) {
  std::vector<float> floats(4);
  std::vector<double> doubles(4);
  EXPECT_THAT(complaint({.input = floats, .output = doubles}), HasSubstr("f64"));
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
              HasSubstr("a world of 4 needs 4"));
  const std::vector<std::size_t> others{1, 2, 3, 4};
  EXPECT_THAT(
      complaint({.collective = Collective::all_gather, .input = part, .output = whole, .output_splits = others}),
      HasSubstr("give rank 0 1 elements"));
}

TEST(RequestTest, AllToAllNeverWorksInPlace) {
  std::vector<float> data(8);
  EXPECT_THAT(complaint({.collective = Collective::all_to_all, .input = data, .output = data}), HasSubstr("overlap"));
}

}  // namespace
}  // namespace ranvier::engine
