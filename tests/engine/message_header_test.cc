#include "engine/message_header.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "engine/request.h"
#include "ranvier/schedule.h"

namespace ranvier::engine {
namespace {

using testing::HasSubstr;
using testing::Not;

// All divisions of `world` ranks into a grid without dimensions of one, and with each also all its periods.
struct Hashes {
  std::vector<std::uint32_t> open, periodic;

  explicit Hashes(Rank world) { divide(world); }

 private:
  void divide(Rank rest) {
    if (rest == 1) return add();
    for (Rank size = 2; size <= rest; ++size) {
      if (rest % size != 0) continue;
      dims_.push_back(size);
      divide(rest / size);
      dims_.pop_back();
    }
  }
  void add() {
    open.push_back(hash_of_dims(dims_, {}));
    periodic.push_back(open.back());
    for (unsigned chosen = 1; chosen < 1U << dims_.size(); ++chosen) {
      std::vector<bool> periods;
      for (std::size_t d = 0; d < dims_.size(); ++d) periods.push_back((chosen >> d & 1) != 0);
      periodic.push_back(hash_of_dims(dims_, periods));
    }
  }

  std::vector<Rank> dims_;
};

// How many pairs of them are the same.
double collisions(std::vector<std::uint32_t> hashes) {
  std::ranges::sort(hashes);
  double pairs = 0;
  for (std::size_t i = 1, alike = 0; i < hashes.size(); ++i) {
    alike = hashes[i] == hashes[i - 1] ? alike + 1 : 0;
    pairs += static_cast<double>(alike);
  }
  return pairs;
}

TEST(Dims, OfAWorldAreToldApartByTheirHashes) {
  double pairs = 0;
  double same = 0;
  for (Rank world = 2; world <= 1024; ++world) {
    const Hashes hashes(world);
    EXPECT_EQ(collisions(hashes.open), 0) << "of " << hashes.open.size() << " grids of " << world << " ranks";
    EXPECT_EQ(std::ranges::count(hashes.periodic, 0U), 0) << "which stands for no dims";
    const auto count = static_cast<double>(hashes.periodic.size());
    pairs += count * (count - 1) / 2;
    same += collisions(hashes.periodic);
  }
  EXPECT_GT(pairs, 1e10);
  EXPECT_LT(same, pairs / std::pow(2, 30)) << "of " << pairs << " pairs of grids with periods";
}

TEST(Dims, OfNodesAreToldApartByTheirHashes) {
  std::vector<std::uint32_t> hashes;
  for (Rank ranks = 1; ranks <= 1 << 20; ++ranks) hashes.push_back(hash_of_dims({ranks}, {}));
  EXPECT_EQ(collisions(hashes), 0);
}

TEST(Dims, OfOneAreDims) {
  const std::array hashes{hash_of_dims({}, {}), hash_of_dims({8}, {}), hash_of_dims({8, 1}, {}),
                          hash_of_dims({1, 8}, {}), hash_of_dims({8}, {true})};
  EXPECT_EQ(hashes[0], 0U);
  EXPECT_EQ(collisions({hashes.begin(), hashes.end()}), 0);
}

// They share a field with the root.
TEST(Dims, AreOfNoCollectiveThatHasARoot) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives)
      EXPECT_FALSE(algorithm.dims != ranvier::Dims::none && has_root(collective))
          << algorithm.name << ", " << name_of(collective);
}

TEST(MessageHeader, SaysWhoseDimsDiffer) {
  const auto text = [](std::uint32_t ours, std::uint32_t theirs) -> std::string {
    const MessageHeader own{.root_or_dims = ours};
    MessageHeader other = own;
    other.root_or_dims = theirs;
    return disagreement(0, own, 1, other, {}, "").what();
  };
  EXPECT_THAT(text(7, 8), HasSubstr("epoch 0), and the dims that rank 0 and rank 1 name for it differ; every rank"));
  EXPECT_THAT(text(0, 8), HasSubstr("epoch 0), whose dims only rank 1 names; every rank"));
  EXPECT_THAT(text(7, 0), HasSubstr("epoch 0), whose dims only rank 0 names; every rank"));
  const MessageHeader rooted{.collective = Collective::reduce, .root_or_dims = 7};
  EXPECT_THAT(disagreement(0, rooted, 1, {.collective = Collective::reduce}, {}, "").what(), Not(HasSubstr("dims")));
  EXPECT_THAT(disagreement(0, rooted, 1, {.collective = Collective::all_reduce}, {}, "").what(),
              Not(HasSubstr("dims")));
}

}  // namespace
}  // namespace ranvier::engine
