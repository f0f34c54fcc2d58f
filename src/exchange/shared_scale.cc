// Integers with a scale that all ranks share, added up in transit. Sapio, Canini, Ho, Nelson, Kalnis, Kim,
// Krishnamurthy, Moshref, Ports and Richtarik, "Scaling Distributed Machine Learning with In-Network Aggregation"
// (SwitchML), NSDI 2021 (arXiv:1903.06701): the ranks agree on the largest magnitude of each block first, and scale so
// that no sum of W integers is beyond its type. Theirs have 32 bits; these have 8, and so error feedback.
//
// The agreement is an all_reduce that start() waits for: two collectives that follow from one another would else begin
// in an order of their own on each rank. Blocks are the paper's packets of 256 values made larger, so that agreeing
// costs 1/32 of what the integers do.
#include "ranvier/shared_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/collective_averaging.h"
#include "exchange/residuals.h"
#include "kernel/vectors.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr int largest_code = std::numeric_limits<std::int8_t>::max();

}  // namespace

SharedScale::SharedScale(Rank world) : steps_(largest_code / world) {
  if (steps_ < 1)
    throw Error(ErrorKind::usage, fmt::format("'switchml' adds codes in 8 bits, which hold no sum of {} ranks; use a "
                                              "codec such as int4 instead",
                                              world));
}

bool SharedScale::measure(std::span<const float> values, std::span<float> largest) {
  for (std::size_t i = 0; i < largest.size(); ++i) {
    const std::size_t size = std::min(block, values.size() - i * block);
    largest[i] = kernel::largest_magnitude(values.data() + i * block, size);
    if (!(largest[i] <= largest_codable)) {  // nor is NaN, of which there is no largest
      std::ranges::fill(largest, std::numeric_limits<float>::infinity());
      return false;
    }
  }
  return true;
}

void SharedScale::encode(std::span<const float> values, std::span<const float> largest,
                         std::span<std::int8_t> codes) const {
  const auto most = static_cast<float>(steps_);
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(begin + block, values.size());
    const float limit = largest[begin / block], scale = limit > 0 ? most / limit : 0;
    // Of a limit so small that its inverse is none, everything is 0.
    const float factor = std::isfinite(scale) ? scale : 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float place = std::clamp(values[i] * factor, -most, most);
      codes[i] = static_cast<std::int8_t>(place + std::copysign(0.5F, place));  // to the nearest, vectorized
    }
  }
}

void SharedScale::decode(std::span<const std::int8_t> codes, std::span<const float> largest, float share,
                         std::span<float> values) const {
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(begin + block, values.size());
    const float step = largest[begin / block] / static_cast<float>(steps_) * share;
    for (std::size_t i = begin; i < end; ++i) values[i] = static_cast<float>(codes[i]) * step;
  }
}

namespace {

struct ScaleTools {
  explicit ScaleTools(Rank world) : scale(world) {}
  const SharedScale scale;
  std::atomic<std::uint64_t> plain = 0;
};

class ScaledAveraging final : public CollectiveAveraging {
 public:
  ScaledAveraging(Communicator& comm, std::shared_ptr<ScaleTools> tools, std::shared_ptr<Residuals::State> state,
                  std::span<float> bucket, std::uint64_t number)
      : comm_(comm), tools_(std::move(tools)), state_(std::move(state)), bucket_(bucket), number_(number) {}

  void start(int priority) {
    ++state_->step;
    const std::size_t count = bucket_.size();
    std::vector<float> owed(count);
    kernel::add(bucket_.data(), state_->residual.data(), owed.data(), count);
    largest_.resize((count + SharedScale::block - 1) / SharedScale::block);
    SharedScale::measure(owed, largest_);
    comm_.run({.input = largest_, .output = largest_, .op = ReduceOp::max, .priority = priority});
    coded_ = kernel::all_finite(largest_);
    if (!coded_) return watch({});
    codes_.resize(count);
    tools_->scale.encode(owed, largest_, codes_);
    tools_->scale.decode(codes_, largest_, 1, bucket_);
    kernel::subtract(owed.data(), bucket_.data(), state_->residual.data(), count);
    const TypedSpan sum(codes_.data(), count, DType::i8);
    watch({comm_.start({.input = sum, .output = sum, .op = ReduceOp::sum, .priority = priority})});
  }

 private:
  std::shared_ptr<Phased> take() override {
    if (!coded_) {
      tools_->plain.fetch_add(1);
      return plain_slice(comm_, bucket_, number_);
    }
    tools_->scale.decode(codes_, largest_, 1 / static_cast<float>(comm_.world()), bucket_);
    return nullptr;
  }

  Communicator& comm_;
  const std::shared_ptr<ScaleTools> tools_;
  const std::shared_ptr<Residuals::State> state_;
  const std::span<float> bucket_;
  const std::uint64_t number_;
  bool coded_ = true;
  std::vector<float> largest_;
  std::vector<std::int8_t> codes_;
};

class ScaleExchange final : public Exchange {
 public:
  ScaleExchange(Communicator& comm, std::string spec)
      : comm_(comm), spec_(std::move(spec)), tools_(std::make_shared<ScaleTools>(comm.world())) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return tools_->plain.load(); }
  std::size_t state_bytes() const override { return residuals_.bytes(); }
  std::vector<std::byte> save(const Bucket& bucket) override { return residuals_.save(bucket, number_); }
  void restore(const Bucket& bucket, ConstBytes kept) override { residuals_.restore(bucket, kept, number_); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto averaging = std::make_shared<ScaledAveraging>(comm_, tools_, residuals_.of(bucket), bucket.values, number_++);
    averaging->start(bucket.priority);
    return averaging;
  }

 private:
  Communicator& comm_;
  const std::string spec_;
  const std::shared_ptr<ScaleTools> tools_;
  Residuals residuals_{1, spec_, comm_.world()};
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> shared_scale_exchange(Communicator& comm, std::string spec) {
  return std::make_unique<ScaleExchange>(comm, std::move(spec));
}

}  // namespace ranvier
