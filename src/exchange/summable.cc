// Reducing in transit: codes that can be added are all-reduced as they are, so that a bucket is encoded once and
// decoded once, however many ranks there are.
#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "exchange/pool.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

class SummableAveraging final : public Averaging, public std::enable_shared_from_this<SummableAveraging> {
 public:
  SummableAveraging(std::shared_ptr<const Codec> codec, std::shared_ptr<CodePool> pool, std::span<float> bucket)
      : codec_(std::move(codec)), pool_(std::move(pool)), bucket_(bucket) {}

  void start(Communicator& comm) {
    const DType type = *codec_->summable_as();
    codes_ = pool_->take(codec_->max_bytes(bucket_.size()));
    const std::size_t bytes = codec_->encode(bucket_, {}, codes_, {});
    // Floating codes are averaged where the last of them is added, in f32 and rounded once; integers would be rounded
    // towards zero there, so the division is left to the floats.
    divisor_ = is_floating(type) ? 1 : comm.world();
    const TypedSpan sum(codes_.data(), bytes / size_of(type), type);
    work_ = comm.start({.input = sum, .output = sum, .op = is_floating(type) ? ReduceOp::average : ReduceOp::sum});
    // Decodes on the thread that finishes the all_reduce, mostly while backward still runs; and keeps the codes alive
    // until then, whatever becomes of the handle.
    work_.on_done([self = shared_from_this()] { self->decode(); });
  }

  void wait() override {
    work_.wait();
    decode();
    if (problem_) std::rethrow_exception(problem_);
  }
  bool done() const override { return decoded_.load(std::memory_order_acquire); }
  std::exception_ptr error() const override { return done() ? problem_ : nullptr; }
  void on_done(std::function<void()> then) override {
    work_.on_done([self = shared_from_this(), then = std::move(then)] {
      self->decode();
      then();
    });
  }

 private:
  // Once, by whoever comes first; others wait for it.
  void decode() {
    const std::lock_guard lock(mutex_);
    if (decoded_.load(std::memory_order_relaxed)) return;
    problem_ = work_.error();
    try {
      if (!problem_) codec_->decode(codes_, bucket_);
    } catch (...) {
      problem_ = std::current_exception();
    }
    if (divisor_ != 1)
      for (float& value : bucket_) value /= static_cast<float>(divisor_);
    pool_->give_back(std::move(codes_));
    decoded_.store(true, std::memory_order_release);
  }

  const std::shared_ptr<const Codec> codec_;
  const std::shared_ptr<CodePool> pool_;
  const std::span<float> bucket_;
  std::vector<std::byte> codes_;
  Rank divisor_ = 1;
  Work work_;
  std::mutex mutex_;
  std::exception_ptr problem_;
  std::atomic<bool> decoded_ = false;
};

class SummableExchange final : public Exchange {
 public:
  SummableExchange(Communicator& comm, std::unique_ptr<Codec> codec)
      : comm_(comm), codec_(std::move(codec)), pool_(std::make_shared<CodePool>()) {
    if (!codec_->summable_as())
      throw Error(ErrorKind::usage, fmt::format("codes of '{}' cannot be added, so they cannot be reduced in transit; "
                                                "use a codec whose codes can, such as bf16",
                                                codec_->spec()));
  }
  std::string_view spec() const override { return codec_->spec(); }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto averaging = std::make_shared<SummableAveraging>(codec_, pool_, bucket.values);
    averaging->start(comm_);
    return averaging;
  }

 private:
  Communicator& comm_;
  const std::shared_ptr<const Codec> codec_;
  const std::shared_ptr<CodePool> pool_;
};

}  // namespace

std::unique_ptr<Exchange> summable_exchange(Communicator& comm, std::unique_ptr<Codec> codec) {
  return std::make_unique<SummableExchange>(comm, std::move(codec));
}

}  // namespace ranvier
