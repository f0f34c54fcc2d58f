// Runs of one worker, and their optimizers, held against what they are to be by the book.
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "integrations/trainer/optimizer.h"
#include "integrations/trainer/trainer.h"
#include "ranvier/communicator.h"
#include "ranvier/store.h"
#include "support/on_threads.h"

namespace ranvier::trainer {
namespace {

// Small images, each class with a bright row of its own.
Dataset images() {
  const auto draw = [](std::size_t count) {
    LabelledImages drawn;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t label = i % 4;
      for (std::size_t pixel = 0; pixel < 64; ++pixel)
        drawn.pixels.push_back(static_cast<std::uint8_t>((pixel / 16 == label ? 200 : 0) + (i * 31 + pixel * 17) % 50));
      drawn.labels.push_back(static_cast<std::uint8_t>(label));
    }
    return drawn;
  };
  return {.content = Images{.rows = 8, .columns = 8, .classes = 4, .train = draw(96), .test = draw(16)},
          .fingerprint = "rows"};
}

TrainResult run_alone(std::string_view sync, double momentum, std::string_view optimizer = "sgd") {
  const auto comm = Communicator::connect(*memory_store(), 0, 1);
  TrainSettings settings;
  settings.model = "mlp";
  settings.epochs = 2;
  settings.evaluate_every = 4;
  settings.batch = 7;  // the last one of an epoch is shorter
  settings.momentum = momentum;
  settings.optimizer = optimizer;
  settings.weight_decay = optimizer == "sgd" ? 0 : 0.1;
  settings.sync = sync;
  return train(settings, images(), *comm, {});
}

TEST(OneWorker, TrainsForAPartOfAnEpochAndItsRateFallsWithin) {
  const auto run = [](double epochs, std::size_t steps) {
    const auto comm = Communicator::connect(*memory_store(), 0, 1);
    TrainSettings settings;
    settings.model = "mlp";
    settings.epochs = epochs;
    settings.steps = steps;
    settings.batch = 7;
    return train(settings, images(), *comm, {});
  };
  const auto half = run(0.5, 1000), begun = run(1, 7);
  EXPECT_EQ(half.steps, 7U);  // of 14
  EXPECT_EQ(half.steps_per_epoch, 14U);
  EXPECT_EQ(begun.steps, 7U);
  EXPECT_NE(half.parameter_hash, begun.parameter_hash) << "as slow as at its end only half of an epoch is";
  EXPECT_EQ(run(1e-6, 1000).steps, 1U) << "no fewer";
}

// With nobody to average with, bit by bit.
TEST(OneWorker, TakesTheStepsOfPlainTrainingByAnyOptimizer) {
  std::set<std::uint64_t> ends;
  for (const std::string_view optimizer : optimizer_names()) {
    const auto plain = run_alone("bsp", 0.9, optimizer);
    ends.insert(plain.parameter_hash);
    for (const std::string_view sync :
         {"local:3", "post-local:3", "node:3", "hierarchy:node=1,world=4", "local:3,adapt=0.5,most=6", "gossip",
          "ad-psgd", "slowmo:3", "diloco:3", "diloco:4,fragments=2,delay=1,merge=0.5", "auto"})
      EXPECT_EQ(run_alone(sync, 0.9, optimizer).parameter_hash, plain.parameter_hash) << optimizer << ' ' << sync;
  }
  EXPECT_EQ(ends.size(), optimizer_names().size()) << "each takes steps of its own";
}

// Servers keep no momentum: only without it their steps are those of SGD. The first batches of `group` only measure,
// which is no loss of training.
TEST(OneWorker, TakesServersStepsLikePlainTrainingWithoutMomentum) {
  const auto plain = run_alone("bsp", 0);
  for (const std::string_view sync : {"async", "ssp:2", "group"}) {
    const auto served = run_alone(sync, 0);
    EXPECT_EQ(served.parameter_hash, plain.parameter_hash) << sync;
    ASSERT_EQ(served.history.size(), plain.history.size());
    for (std::size_t i = 0; i < plain.history.size(); ++i) {
      EXPECT_EQ(served.history[i].loss, plain.history[i].loss) << sync;
      EXPECT_EQ(served.history[i].test.loss, plain.history[i].test.loss) << sync;
    }
  }
}

// What is left of several workers that went at their own pace, the slow ones far behind: nothing is trained twice.
TEST(Survivors, GoOnFromWhoHasComeFurthest) {
  TrainSettings settings;
  settings.model = "mlp";
  settings.batch = 4;
  settings.momentum = 0;
  settings.epochs = 4;  // of 8 steps of three workers
  for (const std::string_view sync : {"async", "ad-psgd", "bsp"}) {
    settings.sync = sync;
    std::vector<Kept> kept(2, {.workers = 3, .ranks = 3});
    for (const std::size_t rank : {0, 1}) {
      settings.steps = rank == 0 ? 9 : 20;
      const auto alone = Communicator::connect(*memory_store(), 0, 1);
      train(settings, images(), *alone, {}, &kept[rank]);
      ASSERT_EQ(kept[rank].step, settings.steps);
    }
    settings.steps = 23;
    const auto store = memory_store();
    support::on_threads(2, [&](Rank rank) {
      const auto comm = Communicator::connect(*store, rank, 2);
      const TrainResult run = train(settings, images(), *comm, {}, &kept[static_cast<std::size_t>(rank)]);
      EXPECT_EQ(run.steps, 23U);
      EXPECT_EQ(run.samples_here, 3U * 12U) << sync << " on rank " << rank;
    });
  }
}

// You et al., 2017: the rate of a layer is 0.001 |w| / (|g| + decay |w|).
TEST(Lars, ScalesByTheNormsOfGradientAndDecay) {
  auto parameters = at::tensor({3.0F, 4.0F});
  const auto gradients = at::tensor({-6.0F, -8.0F});  // against the decay
  const auto optimizer = make_optimizer({.name = "lars", .momentum = 0, .weight_decay = 0.5}, parameters,
                                        {Tensor{.rows = 1, .columns = 2}});
  optimizer->step(parameters, gradients, 100);
  const double rate = 100 * 0.001 * 5 / (10 + 0.5 * 5);
  EXPECT_NEAR(parameters[0].item<double>(), 3 - rate * (-6 + 0.5 * 3), 1e-5);
  EXPECT_NEAR(parameters[1].item<double>(), 4 - rate * (-8 + 0.5 * 4), 1e-5);
}

}  // namespace
}  // namespace ranvier::trainer
