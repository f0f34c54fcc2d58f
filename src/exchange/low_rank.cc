// A bucket's factors, and its small tensors behind them, are one vector, which is averaged once for P and once for Q,
// or with `alternating` once a step. The first of a step goes through an ordinary all_reduce, in its code. The second
// one begins when the first has come, which is no order that all ranks share, as collectives need one: it goes as
// messages, by scatter, reduce, gather, and so does what has no code.
#include "ranvier/low_rank.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "exchange/coded_slice.h"
#include "exchange/residuals.h"
#include "exchange/staged_averaging.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

// One tensor of a bucket.
struct Matrix {
  MatrixShape shape;               // rank 0: goes as it is
  std::size_t begin = 0;           // in the bucket
  std::vector<float> left, right;  // the factors, by column
  std::size_t size() const { return shape.rows * shape.columns; }
};

// What is kept of a bucket; its residual is in Residuals.
struct Factors {
  std::vector<Tensor> tensors;  // whose matrices these are
  std::vector<Matrix> matrices;
  std::vector<float> travelling;  // P or Q of all matrices, then the small tensors
};

struct LowRankTools {
  LowRankOptions options;
  std::unique_ptr<Exchange> in_transit;  // of what goes first in a step
  std::shared_ptr<CodedTools> factors;
  std::shared_ptr<CodedTools> plain;
  std::atomic<std::uint64_t> plain_buckets = 0;
};

class LowRankAveraging final : public StagedAveraging {
 public:
  LowRankAveraging(Communicator& comm, std::shared_ptr<LowRankTools> tools, std::shared_ptr<Factors> factors,
                   std::shared_ptr<Residuals::State> state, const Bucket& bucket, std::uint64_t number)
      : comm_(comm),
        tools_(std::move(tools)),
        factors_(std::move(factors)),
        state_(std::move(state)),
        bucket_(bucket.values),
        priority_(bucket.priority),
        number_(number),
        step_(state_->step++) {}

  void start() {
    // The residual holds M = gradient + residual until what was averaged is taken from it.
    kernel::add(state_->residual.data(), bucket_.data(), state_->residual.data(), bucket_.size());
    left_is_next_ = !tools_->options.alternating || step_ % 2 == 0;
    send_factors();
  }
  void wait() override {
    try {
      if (first_) first_->wait();
    } catch (...) {  // advance() has it
    }
    StagedAveraging::wait();
  }

 private:
  enum class Phase { first, second, plain };

  template <class Body>
  void each_matrix(const Body& body) {
    for (Matrix& matrix : factors_->matrices) body(matrix);
  }

  std::vector<float>& next_of(Matrix& matrix) const { return left_is_next_ ? matrix.left : matrix.right; }
  std::vector<float>& other_of(Matrix& matrix) const { return left_is_next_ ? matrix.right : matrix.left; }

  // The factor that is next, from the other one. Of two factors in a step, the small tensors go with the first.
  void send_factors() {
    std::vector<float>& vector = factors_->travelling;
    vector.clear();
    each_matrix([&](Matrix& matrix) {
      const MatrixShape& shape = matrix.shape;
      if (shape.rank == 0) return;
      const float* const values = state_->residual.data() + matrix.begin;
      std::vector<float>& other = other_of(matrix);
      // Also the Q that PowerSGD begins a step with: P spans the same, and is as large as M, not as its square.
      orthonormalize(other.data(), left_is_next_ ? shape.columns : shape.rows, shape.rank);
      std::vector<float>& next = next_of(matrix);
      if (left_is_next_)
        multiply_by_right(shape, values, other.data(), next.data());
      else
        multiply_by_left(shape, values, other.data(), next.data());
      vector.insert(vector.end(), next.begin(), next.end());
    });
    if (phase_ == Phase::first)
      each_matrix([&](const Matrix& matrix) {
        const float* const values = state_->residual.data() + matrix.begin;  // what another codec owed, too
        if (matrix.shape.rank == 0) vector.insert(vector.end(), values, values + matrix.size());
      });
    if (phase_ == Phase::first && comm_.world() > 1) {
      first_ = tools_->in_transit->start({.values = vector, .priority = priority_});
      first_->on_done([this, self = shared_from_this()] { advance(first_->error()); });
    } else {
      average(vector, tools_->factors);
    }
  }

  void average(std::span<float> values, const std::shared_ptr<CodedTools>& codecs) {
    const auto number = number_ + static_cast<std::uint64_t>(phase_);
    go_on_with(std::make_shared<CodedSlice>(comm_, codecs, values, CodecState{}, number, step_),
               [this](std::exception_ptr problem) { advance(std::move(problem)); });
  }

  // Called once for each average, by the thread that finishes it.
  void advance(std::exception_ptr problem) {
    try {
      if (!problem && take_average()) return;
    } catch (const std::exception& error) {
      problem = std::current_exception();
      comm_.abort(error.what());
    }
    finish(problem);
  }

  // Whether more has to travel.
  bool take_average() {
    if (phase_ == Phase::plain) return false;
    std::vector<float>& vector = factors_->travelling;
    // The same bits everywhere, so all ranks turn off here or none.
    if (!kernel::all_finite(vector)) {
      go_plain();
      return true;
    }
    const float* from = vector.data();
    each_matrix([&](Matrix& matrix) {
      std::vector<float>& factor = next_of(matrix);
      std::copy_n(from, factor.size(), factor.begin());
      from += factor.size();
    });
    if (phase_ == Phase::first)
      each_matrix([&](const Matrix& matrix) {
        if (matrix.shape.rank > 0) return;
        std::copy_n(from, matrix.size(), bucket_.data() + matrix.begin);
        std::fill_n(state_->residual.data() + matrix.begin, matrix.size(), 0.0F);
        from += matrix.size();
      });
    if (phase_ == Phase::first && !tools_->options.alternating) {
      phase_ = Phase::second;
      left_is_next_ = false;
      send_factors();
      return true;
    }
    each_matrix([&](Matrix& matrix) {
      if (matrix.shape.rank == 0) return;
      float* const values = bucket_.data() + matrix.begin;
      float* const residual = state_->residual.data() + matrix.begin;
      multiply_factors(matrix.shape, matrix.left.data(), matrix.right.data(), values);
      kernel::subtract(residual, values, residual, matrix.size());
    });
    return false;
  }

  // The gradients as they are; what was held back stays held back. Factors begin anew, since a value that is not finite
  // may have reached them.
  void go_plain() {
    const bool small_ones_are_averages = phase_ == Phase::second;
    phase_ = Phase::plain;
    tools_->plain_buckets.fetch_add(1);
    each_matrix([&](Matrix& matrix) {
      if (matrix.shape.rank == 0 && small_ones_are_averages) return;
      float* const residual = state_->residual.data() + matrix.begin;
      const float* const values = bucket_.data() + matrix.begin;
      for (std::size_t i = 0; i < matrix.size(); ++i)
        residual[i] = std::isfinite(values[i]) ? residual[i] - values[i] : 0;
      matrix.right.clear();
    });
    average(bucket_, tools_->plain);
  }

  Communicator& comm_;
  const std::shared_ptr<LowRankTools> tools_;
  const std::shared_ptr<Factors> factors_;
  const std::shared_ptr<Residuals::State> state_;
  const std::span<float> bucket_;
  const int priority_;
  const std::uint64_t number_, step_;
  std::shared_ptr<Averaging> first_;
  bool left_is_next_ = true;
  Phase phase_ = Phase::first;
};

class LowRankExchange final : public Exchange {
 public:
  LowRankExchange(Communicator& comm, std::string spec, const LowRankOptions& options, std::unique_ptr<Codec> factors)
      : comm_(comm), spec_(std::move(spec)), tools_(std::make_shared<LowRankTools>()) {
    tools_->options = options;
    tools_->in_transit = summable_exchange(comm, make_codec(factors->spec()));
    tools_->factors = tools_of(std::move(factors));
    tools_->plain = tools_of(make_codec("fp32"));
  }
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return tools_->plain_buckets.load(); }
  std::size_t state_bytes() const override {
    std::size_t bytes = residuals_.bytes();
    for (const auto& [first, factors] : factors_)
      for (const Matrix& matrix : factors->matrices)
        bytes += (matrix.left.size() + matrix.right.size()) * sizeof(float);
    return bytes;
  }

  std::vector<std::byte> save(const Bucket& bucket) override {
    auto bytes = residuals_.save(bucket, number_);
    for (const Matrix& matrix : factors_for(*residuals_.of(bucket))->matrices)
      for (const auto* factor : {&matrix.left, &matrix.right})
        Residuals::append(bytes, std::as_bytes(std::span(*factor)));
    return bytes;
  }
  // Factors of another rank, and none, let this one begin with its own. In another world all do, from step 0, of which
  // factors are made and by which they take turns: ranks may have come that bring none.
  void restore(const Bucket& bucket, ConstBytes all) override {
    ConstBytes kept = residuals_.restore(bucket, all, number_);
    const auto state = residuals_.of(bucket);
    const bool same_world = residuals_.is_of_this_world(all);
    if (!same_world) state->step = 0;
    const auto factors = factors_for(*state);
    std::size_t bytes = 0;
    for (const Matrix& matrix : factors->matrices) bytes += (matrix.left.size() + matrix.right.size()) * sizeof(float);
    if (!same_world || kept.size() != bytes) return;
    for (Matrix& matrix : factors->matrices)
      for (auto* factor : {&matrix.left, &matrix.right}) {
        if (!factor->empty()) std::memcpy(factor->data(), kept.data(), factor->size() * sizeof(float));
        kept = kept.subspan(factor->size() * sizeof(float));
      }
  }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto state = residuals_.of(bucket);
    const auto factors = factors_for(*state);
    auto averaging =
        std::make_shared<LowRankAveraging>(comm_, tools_, factors, std::move(state), bucket, 3 * number_++);
    averaging->start();
    return averaging;
  }

 private:
  static std::shared_ptr<CodedTools> tools_of(std::shared_ptr<const Codec> codec) {
    auto tools = std::make_shared<CodedTools>();
    tools->codec = tools->sums = std::move(codec);
    return tools;
  }

  std::shared_ptr<Factors> factors_for(const Residuals::State& state) {
    auto& factors = factors_[state.tensors.front().id];
    // Another bucket may begin with the same tensor.
    const auto are_same = [](const Tensor& a, const Tensor& b) {
      return a.id == b.id && a.rows == b.rows && a.columns == b.columns;
    };
    if (!factors || !std::ranges::equal(factors->tensors, state.tensors, are_same)) factors = new_factors(state);
    begin_where_new(*factors, state);
    return factors;
  }

  std::shared_ptr<Factors> new_factors(const Residuals::State& state) const {
    auto factors = std::make_shared<Factors>();
    factors->tensors = state.tensors;
    std::size_t begin = 0;
    for (const Tensor& tensor : state.tensors) {
      factors->matrices.push_back({.shape = low_rank_shape(tensor.rows, tensor.columns, tools_->options.rank),
                                   .begin = begin,
                                   .left = {},
                                   .right = {}});
      begin += tensor.size();
    }
    return factors;
  }

  // The first factors are random, and the same on all ranks. A left one counts where steps alternate.
  static void begin_where_new(Factors& factors, const Residuals::State& state) {
    std::uint64_t seed = (state.step + 1) << 32;  // another one for each matrix
    for (Matrix& matrix : factors.matrices) {
      ++seed;
      if (matrix.shape.rank == 0 || !matrix.right.empty()) continue;
      matrix.left.resize(matrix.shape.rows * matrix.shape.rank);
      matrix.right.resize(matrix.shape.columns * matrix.shape.rank);
      fill_factors(matrix.left, matrix.right, seed);
    }
  }

  Communicator& comm_;
  const std::string spec_;
  const std::shared_ptr<LowRankTools> tools_;
  Residuals residuals_{1, spec_, comm_.world()};
  std::unordered_map<std::uint64_t, std::shared_ptr<Factors>> factors_;  // by the first tensor of their bucket
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> low_rank_exchange(Communicator& comm, std::string spec, const LowRankOptions& options,
                                            std::unique_ptr<Codec> factors) {
  return std::make_unique<LowRankExchange>(comm, std::move(spec), options, std::move(factors));
}

}  // namespace ranvier
