// Which buckets of gradients leave while backward still computes others.
#include "integrations/trainer/gradient_buckets.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/store.h"

namespace ranvier::trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t layer_size = 4;
constexpr std::size_t layer_bytes = layer_size * sizeof(float);

// A bucket that was started: its place among all gradients, and how many of those backward had computed by then.
// Counted in layers.
struct Start {
  std::size_t first;
  std::size_t computed;
  bool operator==(const Start&) const = default;
};
void PrintTo(const Start& start, std::ostream* out) {
  *out << "bucket at " << start.first << " with " << start.computed << " computed";
}

// Averages nothing, and keeps a record.
class CountingExchange final : public Exchange {
 public:
  explicit CountingExchange(std::string spec = "none") : spec_(std::move(spec)) {}
  std::string_view spec() const override { return spec_; }
  using Exchange::start;
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    const auto first = static_cast<std::size_t>(bucket.values.data() - all_.data());
    const auto computed = std::ranges::count_if(all_, [](float value) { return value != 0; });
    starts.push_back({first / layer_size, static_cast<std::size_t>(computed) / layer_size});
    return std::make_shared<Nothing>(*this);
  }

  void watch(at::Tensor& gradients) {
    all_ = {gradients.data_ptr<float>(), static_cast<std::size_t>(gradients.numel())};
  }

  std::vector<Start> starts;
  std::size_t waits = 0;

 private:
  struct Nothing final : Averaging {
    explicit Nothing(CountingExchange& exchange) : owner(exchange) {}
    void wait() override { ++owner.waits; }
    bool done() const override { return true; }
    std::exception_ptr error() const override { return nullptr; }
    void on_done(std::function<void()> then) override { then(); }
    CountingExchange& owner;
  };

  const std::string spec_;
  std::span<const float> all_;
};

class GradientBucketsTest : public testing::Test {
 protected:
  // `count` layers, `layers_a_bucket` of which fill a bucket. Backward computes the last one's gradient first.
  void make(std::size_t count, std::size_t layers_a_bucket) {
    for (std::size_t i = 0; i < count; ++i)
      layers.push_back(at::ones({static_cast<std::int64_t>(layer_size)}).set_requires_grad(true));
    buckets = std::make_unique<GradientBuckets>(layers, *comm, exchange, layers_a_bucket * layer_bytes);
    exchange.watch(buckets->gradients());
    buckets->clear();
  }

  // Of a forward pass that used these layers, in this order.
  void backward(const std::vector<std::size_t>& used) {
    at::Tensor value = at::ones({static_cast<std::int64_t>(layer_size)});
    for (const std::size_t layer : used) value = value * layers[layer];
    value.sum().backward();
  }

  std::unique_ptr<Communicator> comm = Communicator::connect(*memory_store(), 0, 1);
  CountingExchange exchange;
  std::vector<at::Tensor> layers;
  std::unique_ptr<GradientBuckets> buckets;
};

// An average that is under way is into their memory.
TEST_F(GradientBucketsTest, WaitForWhatHasLeftWhereBackwardFails) {
  make(6, 2);
  backward({2, 3, 4, 5});
  ASSERT_EQ(exchange.starts.size(), 2U);
  buckets.reset();
  EXPECT_EQ(exchange.waits, 2);
}

TEST_F(GradientBucketsTest, LeaveWhileBackwardStillComputesOthers) {
  make(6, 2);
  backward({0, 1, 2, 3, 4, 5});
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 2}, Start{2, 4}, Start{4, 6}));
  EXPECT_EQ(exchange.waits, 0);
  buckets->finish();
  EXPECT_EQ(exchange.starts.size(), 3) << "a bucket was started twice";
  EXPECT_EQ(exchange.waits, 3);
}

TEST_F(GradientBucketsTest, LeaveTogetherAtTheEndOfBackwardWhereThatCostsLess) {
  make(4, 2);
  buckets->exchange_by(exchange, false);
  buckets->clear();
  backward({0, 1, 2, 3});
  EXPECT_THAT(exchange.starts, IsEmpty());
  buckets->finish();
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 4}));
  EXPECT_EQ(exchange.waits, 1);
  EXPECT_EQ(buckets->hidden().count(), 0);

  buckets->exchange_by(exchange);
  buckets->clear();
  exchange.starts.clear();
  backward({0, 1, 2, 3});
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 2}, Start{2, 4})) << "buckets are not what they were before";
}

// A checkpoint has a codec's state by buckets of --bucket, and codes themselves depend on where a bucket ends.
TEST_F(GradientBucketsTest, KeepTheirSizesWhereTheyAreCoded) {
  make(4, 2);
  CountingExchange coded("int8");
  coded.watch(buckets->gradients());
  buckets->exchange_by(coded, false);
  buckets->clear();
  backward({0, 1, 2, 3});
  EXPECT_THAT(coded.starts, IsEmpty());
  buckets->finish();
  EXPECT_THAT(coded.starts, ElementsAre(Start{0, 4}, Start{2, 4}));
}

TEST_F(GradientBucketsTest, LeaveInTheSameOrderWhicheverIsReadyFirst) {
  make(3, 1);
  backward({2, 0, 1});  // layer 2, the first bucket, is ready last
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 3}, Start{1, 3}, Start{2, 3}));
  buckets->clear();
  exchange.starts.clear();
  backward({1, 0, 2});
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 1}, Start{1, 3}, Start{2, 3}));
}

TEST_F(GradientBucketsTest, WaitForTheEndOfBackwardBehindALayerThatWasNotUsed) {
  make(3, 1);
  backward({0, 2});
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 1}));
  buckets->finish();
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 1}, Start{1, 2}, Start{2, 2}));
  EXPECT_EQ(exchange.waits, 3);
}

TEST_F(GradientBucketsTest, LeaveInTheLastOfSeveralPasses) {
  make(2, 1);
  buckets->expect_another_pass(true);
  backward({0, 1});
  EXPECT_THAT(exchange.starts, IsEmpty());
  buckets->expect_another_pass(false);
  backward({0, 1});
  EXPECT_THAT(exchange.starts, ElementsAre(Start{0, 2}, Start{1, 2}));
  EXPECT_EQ(buckets->gradients().sum().item<float>(), 2.F * 2 * layer_size);
}

TEST_F(GradientBucketsTest, StayWhereAWorkerKeepsItsOwnGradients) {
  make(2, 1);
  buckets->clear(/*averaged=*/false);
  backward({0, 1});
  buckets->finish();
  EXPECT_THAT(exchange.starts, IsEmpty());
}

}  // namespace
}  // namespace ranvier::trainer
