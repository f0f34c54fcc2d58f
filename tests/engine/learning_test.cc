// "auto" corrected by what runs show: ranks of one world exchange real findings of planted durations.
#include "engine/learning.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "ranvier/communicator.h"
#include "ranvier/cost.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/store.h"
#include "support/cluster.h"
#include "support/temporary_folder.h"

namespace ranvier::engine {
namespace {

constexpr Rank world = 4;
constexpr std::size_t learned_slice = 128 << 10;
constexpr LinkModel gigabit{.latency = 60e-6, .message = 1.5e-6, .byte = 8e-9, .reduce = 0.05e-9};
constexpr LinkModel bytes_for_nothing{.latency = 60e-6, .message = 1.5e-6, .byte = 1e-12, .reduce = 1e-13};

// What an operation takes on a rank.
struct Planted {
  std::string_view algorithm;
  std::size_t bytes = 0;
  Rank rank = 0;
};
using Truth = std::function<double(const Planted&)>;

double by_model(const LinkModel& links, const Planted& operation) {
  const AlgorithmSpec spec = parse_algorithm(operation.algorithm);
  static thread_local std::map<std::string, ScheduleCost, std::less<>> costs;
  auto known = costs.find(operation.algorithm);
  if (known == costs.end())
    known = costs
                .emplace(std::string(operation.algorithm),
                         ScheduleCost(spec.algorithm().build(
                             {.collective = Collective::all_reduce, .world = world, .dims = spec.dims})))
                .first;
  return predict(links, known->second, operation.bytes, learned_slice);
}

Truth true_to(const LinkModel& links) {
  return [links](const Planted& operation) { return by_model(links, operation); };
}

// A rank whose clock goes on by what is planted, and only while something runs. Its findings are told by real
// operations, the others are as well while `real_`: a machine with other work takes long for thousands of them.
class Learner {
 public:
  Learner(Communicator& comm, const LinkModel& believed, Truth truth, TuningTable given = {})
      : comm_(comm),
        truth_(std::move(truth)),
        selection_(std::make_shared<Selection>(
            SelectionSettings{.world = world, .transport = "tcp", .links = believed, .slice_bytes = learned_slice})),
        learning_({.selection = selection_,
                   .given = std::move(given),
                   .check = [this](const Request& request) { shape_of(request, comm_.rank(), world); },
                   .run =
                       [this](const Request& request) {
                         if (real_ || request.output.dtype == DType::f64) comm_.run(request);
                         note(request);
                       },
                   .start =
                       [this](const Request& request) {
                         note(request);
                         return comm_.start(request);
                       },
                   .clock = [this] { return now_; }}) {}

  void all_reduce(std::size_t bytes, std::string_view algorithm = {}) { learning_.run(request(bytes, algorithm)); }
  void all_reduce_of_different_sizes(std::size_t bytes) {
    Request wrong = request(bytes, {});
    --wrong.input.count;
    learning_.run(wrong);
  }
  void be_real(bool real = true) { real_ = real; }
  void start(std::size_t bytes) { learning_.start(request(bytes, {})).wait(); }

  std::string own_choice(std::size_t bytes) {
    const auto fits = [&](const TuningRow& row) { return bytes <= row.up_to; };
    return std::ranges::find_if(selection_->rows(Collective::all_reduce), fits)->algorithm;
  }
  // What the next run would find in its file.
  TuningTable table(TuningTable before = {}) const {
    for (const std::vector<TuningRow>& rows : learning_.additions_to(before)) before.replace(rows);
    return before;
  }
  const Learning& learning() const { return learning_; }
  const std::vector<std::string>& ran() const { return ran_; }
  std::size_t agreements() const { return agreements_; }
  std::span<const float> data() const { return data_; }

 private:
  Request request(std::size_t bytes, std::string_view algorithm) {
    data_.resize(bytes / sizeof(float));
    for (std::size_t i = 0; i < data_.size(); ++i)
      data_[i] = 1.F / static_cast<float>(i % 97 + 3 + static_cast<std::size_t>(comm_.rank()));
    return {.collective = Collective::all_reduce, .input = data_, .output = data_, .algorithm = algorithm};
  }
  void note(const Request& request) {
    if (request.output.dtype == DType::f64) {
      ++agreements_;
      return;
    }
    const std::size_t bytes = request.output.bytes();
    ran_.push_back(request.algorithm.empty() ? own_choice(bytes) : std::string(request.algorithm));
    now_ += truth_({.algorithm = ran_.back(), .bytes = bytes, .rank = comm_.rank()});
  }

  Communicator& comm_;
  const Truth truth_;
  const std::shared_ptr<Selection> selection_;
  bool real_ = false;
  double now_ = 0;
  std::vector<std::string> ran_;  // algorithms
  std::size_t agreements_ = 0;
  std::vector<float> data_;
  Learning learning_;
};

template <class Value>
using OfRanks = std::array<Value, world>;

template <class Value>
Value& of(OfRanks<Value>& values, const Communicator& comm) {
  return values[static_cast<std::size_t>(comm.rank())];
}

template <class Value>
void expect_alike(const OfRanks<Value>& values) {
  for (std::size_t rank = 1; rank < world; ++rank) EXPECT_EQ(values[rank], values[0]) << "rank " << rank;
}

TEST(Learning, CorrectsAModelThatIsWrongOnAllRanksAlike) {
  constexpr std::size_t bytes = 256 << 10;
  OfRanks<std::vector<std::string>> ran;
  OfRanks<std::string> tables;
  OfRanks<std::uint64_t> sums{};
  support::run_ranks(world, [&](Communicator& comm) {
    Learner learner(comm, bytes_for_nothing, true_to(gigabit));
    const std::string own = learner.own_choice(bytes);
    for (int i = 0; i < 900; ++i) {
      learner.be_real(i >= 45 && i < 90);
      learner.all_reduce(bytes);
      if (i < 45 || i >= 90) continue;
      std::uint64_t bits = 0;
      for (const float value : learner.data().first(1000)) {
        std::uint32_t word = 0;
        std::memcpy(&word, &value, sizeof word);
        bits = bits * 31 + word;
      }
      of(sums, comm) = of(sums, comm) * 31 + bits;
    }
    of(ran, comm) = learner.ran();
    of(tables, comm) = learner.table().text();
    EXPECT_EQ(learner.ran().front(), own);
    EXPECT_LT(by_model(gigabit, {learner.ran().back(), bytes}), 0.9 * by_model(gigabit, {own, bytes}))
        << learner.ran().back() << " in place of " << own;
    const auto found = learner.table().find(Collective::all_reduce, "tcp", world, bytes);
    ASSERT_TRUE(found);
    EXPECT_EQ(spec_text(*found), learner.ran().back());
    EXPECT_FALSE(learner.table().find(Collective::all_reduce, "tcp", world, 2 * bytes)) << "of that nothing is known";
    EXPECT_THAT(learner.table().text(), testing::HasSubstr(learner.ran().back() + " learned"));
  });
  expect_alike(ran);
  expect_alike(tables);
  expect_alike(sums);
}

TEST(Learning, NoiseDoesNotMoveAModelThatIsRight) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    OfRanks<std::vector<std::string>> ran;
    support::run_ranks(world, [&](Communicator& comm) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(comm.rank()));
      std::uniform_real_distribution<double> noise(1, 1.6);
      Learner learner(comm, gigabit, [&](const Planted& operation) {
        return noise(random) * by_model(gigabit, operation) + (random() % 50 == 0 ? 10e-3 : 0);
      });
      for (int i = 0; i < 900; ++i)
        for (const std::size_t bytes : {4096, 64 << 10}) learner.all_reduce(bytes);
      of(ran, comm) = learner.ran();
      EXPECT_EQ(learner.table().text(), TuningTable().text());
      EXPECT_LE(learner.agreements(), 2U * 2 * Lesson::agreements.size());
    });
    expect_alike(ran);
  }
}

// As wrong everywhere: twice as slow as was thought, but no algorithm gains by that.
TEST(Learning, KnowsHowWrongTheModelIsElsewhere) {
  LinkModel slow = gigabit;
  for (double LinkModel::*const number :
       {&LinkModel::latency, &LinkModel::message, &LinkModel::byte, &LinkModel::reduce})
    slow.*number *= 2;
  support::run_ranks(world, [&](Communicator& comm) {
    Learner learner(comm, gigabit, true_to(slow));
    for (int i = 0; i < 60; ++i) learner.all_reduce(4096);
    const std::size_t before = learner.agreements();
    for (int i = 0; i < 300; ++i) learner.all_reduce(64 << 10);
    EXPECT_EQ(learner.agreements(), before + 2) << "and no duel, each of which ends with one more";
  });
}

TEST(Learning, RanksOfUnevenTimingsDecideAlike) {
  constexpr std::size_t bytes = 64 << 10;
  OfRanks<std::vector<std::string>> ran;
  support::run_ranks(world, [&](Communicator& comm) {
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    // Each rank has its own opinion of every algorithm.
    std::map<std::string, double, std::less<>> opinions;
    Learner learner(comm, bytes_for_nothing, [&](const Planted& operation) {
      auto& opinion = opinions[std::string(operation.algorithm)];
      if (opinion == 0) opinion = 1 + 1e-3 * static_cast<double>(random() % 5000);
      return opinion;
    });
    for (int i = 0; i < 900; ++i) learner.all_reduce(bytes);
    of(ran, comm) = learner.ran();
    EXPECT_EQ(learner.agreements(), 2 * Lesson::agreements.size()) << "each is followed by a duel";
  });
  expect_alike(ran);
}

TEST(Learning, WhatSomebodyChoseStands) {
  constexpr std::size_t bytes = 64 << 10;
  support::run_ranks(world, [&](Communicator& comm) {
    const auto given = TuningTable::parse(
        "all_reduce tcp 4 32K auto\n"
        "all_reduce tcp 4 100K parameter_server\n"
        "all_reduce tcp 4 max auto",
        "table");
    Learner learner(comm, bytes_for_nothing, true_to(gigabit), given);
    for (int i = 0; i < 100; ++i) {
      learner.all_reduce(bytes);
      learner.all_reduce(8 << 10, "ring");
    }
    EXPECT_EQ(learner.agreements(), 0U);
    for (int i = 0; i < 100; ++i) learner.all_reduce(512 << 10);
    EXPECT_EQ(learner.agreements(), 2U) << "what is left to auto is corrected";
    const TuningTable table = learner.table(given);
    EXPECT_EQ(spec_text(*table.find(Collective::all_reduce, "tcp", world, bytes)), "parameter_server");
    EXPECT_FALSE(table.find(Collective::all_reduce, "tcp", world, 1024));
    EXPECT_TRUE(table.find(Collective::all_reduce, "tcp", world, 512 << 10));
    EXPECT_EQ(TuningTable::parse(table.text(), "its text").rows(), table.rows());
  });
}

// Two sizes of one class, always one after the other: neither side of a duel gets only the small one.
TEST(Learning, SizesThatComeInTurnsFavourNobody) {
  support::run_ranks(world, [](Communicator& comm) {
    Learner learner(comm, bytes_for_nothing,
                    [](const Planted& operation) { return 1e-6 * static_cast<double>(operation.bytes); });
    for (int i = 0; i < 900; ++i) learner.all_reduce(i % 2 == 0 ? 84 << 10 : 48 << 10);
    EXPECT_GT(learner.agreements(), Lesson::agreements.size()) << "there were duels";
    EXPECT_EQ(learner.table().text(), TuningTable().text());
  });
}

TEST(Learning, OperationsThatOneRankStartsAreLeftAsTheyAre) {
  constexpr std::size_t bytes = 64 << 10;
  // Always; only while a duel is on; only the one at which the ranks agree on its end.
  for (const auto& range : {std::pair(0, 100), std::pair(60, 61), std::pair(82, 82)}) {
    OfRanks<std::vector<std::string>> ran;
    support::run_ranks(world, [&](Communicator& comm) {
      Learner learner(comm, bytes_for_nothing, true_to(gigabit));
      learner.be_real();
      for (int i = 0; i < 100; ++i)
        if (comm.rank() == 2 && i >= range.first && i <= range.second)
          learner.start(bytes);
        else
          learner.all_reduce(bytes);
      of(ran, comm) = learner.ran();
      EXPECT_EQ(learner.ran().back(), learner.own_choice(bytes));
      EXPECT_EQ(learner.table().text(), TuningTable().text());
    });
    expect_alike(ran);
  }
}

TEST(Learning, ACallThatWasRefusedHasNotBeen) {
  support::run_ranks(world, [](Communicator& comm) {
    Learner learner(comm, bytes_for_nothing, true_to(gigabit));
    learner.be_real();
    for (int i = 0; i < 90; ++i) {
      // As the same shape, on one rank only.
      if (comm.rank() == 1) {
        EXPECT_THROW(learner.all_reduce_of_different_sizes(64 << 10), Error);
      }
      learner.all_reduce(64 << 10);
    }
  });
}

TEST(Learning, IsKeptInAFileThatTheNextRunFollows) {
  const support::TemporaryFolder folder;
  const auto file = folder.path() / "tuning.txt";
  constexpr std::size_t bytes = 256 << 10;
  support::run_ranks(world, [&](Communicator& comm) {
    Learner learner(comm, bytes_for_nothing, true_to(gigabit));
    if (comm.rank() == 0) {
      learner.learning().add_to(file);
      EXPECT_FALSE(std::filesystem::exists(file)) << "nothing was learned yet";
    }
    for (int i = 0; i < 90; ++i) learner.all_reduce(bytes);
    learner.learning().add_to(file);  // all of them, as the ranks of a host do
    comm.barrier();
    Learner next(comm, bytes_for_nothing, true_to(gigabit), TuningTable::read(file));
    for (int i = 0; i < 60; ++i) next.all_reduce(bytes);
    EXPECT_EQ(next.agreements(), 0U) << "what is in the file stands";
  });
  TuningTable table = TuningTable::read(file);
  EXPECT_TRUE(table.find(Collective::all_reduce, "tcp", world, bytes));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "and nothing beside it";
}

TEST(Learning, CommunicatorsOfOneKindKeepWhatTheOtherHasFound) {
  const support::TemporaryFolder folder;
  const auto file = folder.path() / "tuning.txt";
  std::ofstream(file) << "# mine\nall_gather tcp 4 max ring\n";
  support::run_ranks(world, [&](Communicator& comm) {
    Learner first(comm, bytes_for_nothing, true_to(gigabit)), second(comm, bytes_for_nothing, true_to(gigabit));
    for (int i = 0; i < 90; ++i) {
      first.all_reduce(256 << 10);
      second.all_reduce(64 << 10);
    }
    if (comm.rank() != 0) return;
    first.learning().add_to(file);
    second.learning().add_to(file);
    // What somebody has written meanwhile stands.
    TuningTable meanwhile;
    meanwhile.replace({{.transport = "tcp", .ranks = world, .algorithm = "ring"}});
    EXPECT_EQ(first.table(meanwhile).rows(), meanwhile.rows());
  });
  const TuningTable table = TuningTable::read(file);
  for (const std::size_t bytes : {256 << 10, 64 << 10})
    EXPECT_TRUE(table.find(Collective::all_reduce, "tcp", world, bytes)) << bytes;
  std::ifstream in(file);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(in), {}), testing::HasSubstr("# mine\nall_gather tcp"));
}

TEST(Learning, IsOfACommunicatorThatIsToldTo) {
  const support::TemporaryFolder folder;
  auto options = support::ClusterOptions::patient();
  options.learn = true;
  options.measure = false;
  options.tuning = (folder.path() / "tuning.txt").string();
  OfRanks<std::string> tables;
  support::run_ranks(world,
                     [&](Communicator& comm) {
                       std::vector<float> part(1000, 1), all(world * part.size());
                       for (int i = 0; i < 100; ++i) {
                         comm.all_gather(part, all);
                         comm.reduce_scatter(all, part);
                         for (const float value : part) ASSERT_EQ(value, world);
                         std::ranges::fill(part, 1.F);
                       }
                       EXPECT_GE(comm.traffic().operations, 203U)
                           << "one to agree on slices, two to tell what the others found";
                       of(tables, comm) = comm.tuning().text();
                     },
                     {.way = "tcp", .communicator = options});
  expect_alike(tables);
}

TEST(Learning, RanksThatAreNotAllToldToAreRefused) {
  const auto store = memory_store();
  std::array<std::string, 2> told;
  const auto join = [&](Rank rank) {
    try {
      Communicator::connect(*store, rank, 2, {.learn = rank == 0, .join_timeout = std::chrono::seconds(20)});
    } catch (const Error& error) {
      told[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  {
    const std::jthread other(join, 1);
    join(0);
  }
  for (const std::string& sentence : told) EXPECT_THAT(sentence, testing::HasSubstr("rank 0 has learn"));
}

}  // namespace
}  // namespace ranvier::engine
