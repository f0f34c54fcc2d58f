// The executor sends sums back in place where it can, and waits for nobody in a circle for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/schedule.h"
#include "support/on_threads.h"
#include "support/sanitized.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

using testing::Each;

class CountsAnswers final : public support::TransportOver, public AnswersInPlace {
 public:
  CountsAnswers(std::unique_ptr<Transport> inner, int& answers) : CountsAnswers(*inner, inner, answers) {}

  AnswersInPlace* answers_in_place() override { return this; }
  std::uint32_t unanswered() const override { return inner_->unanswered(); }
  std::size_t try_ask(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    return inner_->try_ask(to, lane, head, body);
  }
  Bytes answerable(Rank to, Lane lane, ConstBytes body) override { return inner_->answerable(to, lane, body); }
  void answer(Rank to, Lane lane, ConstBytes head, Bytes body) override {
    ++answers_;
    inner_->answer(to, lane, head, body);
  }

 private:
  CountsAnswers(Transport& same, std::unique_ptr<Transport>& inner, int& answers)
      : TransportOver(std::move(inner)), inner_(same.answers_in_place()), answers_(answers) {}

  AnswersInPlace* const inner_;
  int& answers_;
};

// All ranks' all_reduces, of whole numbers so that the order of sums does not matter.
struct Job {
  std::string algorithm;
  Rank world = 2;
  std::size_t count = 0;
  bool in_place = true;
  bool lent = false;  // by every second rank
  int times = 1;
};

std::vector<int> answers_of(const Job& job) {
  std::vector<int> answers(static_cast<std::size_t>(job.world));
  auto world = loopback_world(job.world);
  support::on_threads(job.world, [&](Rank rank) {
    const auto r = static_cast<std::size_t>(rank);
    CommunicatorOptions options;
    options.algorithm = job.algorithm;
    std::unique_ptr<Transport> transport = std::move(world[r]);
    if (!job.lent) transport = std::make_unique<CountsAnswers>(std::move(transport), answers[r]);
    const auto comm = Communicator::over(std::move(transport), options);
    const bool lends = job.lent && rank % 2 == 0;
    const auto memory = comm->allocate(job.count * sizeof(float));
    std::vector<float> own(lends ? 0 : job.count), out(job.in_place ? 0 : job.count);
    const std::span<float> input =
        lends ? std::span(reinterpret_cast<float*>(memory.get()), job.count) : std::span(own);
    const std::span<float> output = job.in_place ? input : std::span(out);
    for (int time = 1; time <= job.times; ++time) {
      for (std::size_t i = 0; i < job.count; ++i)
        input[i] = static_cast<float>((i + static_cast<std::size_t>(time)) % 1000 * (r + 1));
      comm->start({.collective = Collective::all_reduce, .input = input, .output = output}).wait();
      const auto all = static_cast<std::size_t>(job.world * (job.world + 1) / 2);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < job.count; ++i)
        wrong += output[i] != static_cast<float>((i + static_cast<std::size_t>(time)) % 1000 * all) ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << job.algorithm << " of " << job.world << " ranks, rank " << rank << ", time " << time;
    }
  });
  return answers;
}

constexpr std::size_t slices = (32 << 10) / sizeof(float);  // elements of one slice of shared memory

TEST(AnswersTest, TakeAllTheWayBackOfTwoRanks) {
  for (const char* algorithm : {"ring", "halving_doubling", "direct"})
    for (const bool in_place : {true, false}) {
      const auto answers = answers_of({.algorithm = algorithm, .count = 32 * slices, .in_place = in_place, .times = 3});
      // Of 16 slices each way; one whose slot could not be had at once goes as ever.
      EXPECT_THAT(answers, Each(testing::Gt(0))) << algorithm << (in_place ? " in place" : "");
      EXPECT_THAT(answers, Each(testing::Le(3 * 16)));
    }
}

TEST(AnswersTest, AreRightAndEndWithEveryAlgorithm) {
  for (const Rank world : support::sanitized ? std::vector<Rank>{2, 3} : std::vector<Rank>{2, 3, 4, 5, 8})
    for (const AlgorithmSpec& spec : candidates(Collective::all_reduce, world)) {
      // More slices to a peer than there are slots, in one round where the algorithm has its chunks together.
      const std::size_t count = (world < 5 ? 20 * static_cast<std::size_t>(world) : 40) * slices + 13;
      answers_of({.algorithm = spec_text(spec), .world = world, .count = count, .times = 2});
      answers_of({.algorithm = spec_text(spec), .world = world, .count = count, .in_place = false});
    }
}

// Of messages without bytes, which only say that they are there, none is answered.
TEST(AnswersTest, AreRightOfNearlyNothing) {
  for (Rank world = 2; world <= (support::sanitized ? 5 : 9); ++world)
    for (const AlgorithmSpec& spec : candidates(Collective::all_reduce, world)) {
      for (std::size_t count = 0; count <= 3; ++count)
        answers_of({.algorithm = spec_text(spec), .world = world, .count = count, .times = 2});
      auto ranks = loopback_world(world);
      support::on_threads(world, [&](Rank rank) {
        CommunicatorOptions options;
        options.algorithm = spec_text(spec);
        const auto comm = Communicator::over(std::move(ranks[static_cast<std::size_t>(rank)]), options);
        for (int i = 0; i < 3; ++i) comm->barrier();
      });
    }
}

TEST(AnswersTest, GoWithLentMemoryOfThePeer) {
  for (const Rank world : {2, 4})
    for (const char* algorithm : {"ring", "halving_doubling", "direct"})
      answers_of({.algorithm = algorithm,
                  .world = world,
                  .count = 40 * slices * static_cast<std::size_t>(world),
                  .lent = true,
                  .times = 8});  // some of them copied after all, see Lending
}

}  // namespace
}  // namespace ranvier
