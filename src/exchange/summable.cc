// Reducing in transit: codes that can be added are all-reduced as they are, so that a bucket is encoded once and
// decoded once, however many ranks there are. Where they follow from a seed (randk), all ranks take the same one.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/collective_averaging.h"
#include "exchange/pool.h"
#include "exchange/residuals.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

struct SummableTools {
  std::shared_ptr<const Codec> codec;
  Pool<std::byte> codes = {};
  std::atomic<std::uint64_t> plain = 0;
};

class SummableAveraging final : public CollectiveAveraging {
 public:
  SummableAveraging(std::shared_ptr<SummableTools> tools, std::shared_ptr<Residuals::State> state,
                    std::span<float> bucket)
      : tools_(std::move(tools)), state_(std::move(state)), bucket_(bucket) {}

  void start(Communicator& comm, std::uint64_t number, int priority) {
    comm_ = &comm;
    number_ = number;
    const Codec& codec = *tools_->codec;
    const DType type = *codec.summable_as();
    const CodecKey key{.seed = seed_of(number, 0, 1), .step = state_->step++};
    const float scale = codec.sum_scale(comm.world());
    if (scale != 1) kernel::multiply(bucket_.data(), scale, bucket_.data(), bucket_.size());
    codes_ = tools_->codes.take(codec.max_bytes(bucket_.size()));
    bytes_ = codec.encode(bucket_, {.residual = state_->residual}, codes_, key);
    // Whoever has no code gives NaN in its place, which reaches everybody: the code of nothing is as long, and as
    // random.
    coded_ = bytes_ > 0 || bucket_.empty();
    if (!coded_) {
      bytes_ = codec.encode(std::vector<float>(bucket_.size()), {}, codes_, key);
      std::fill_n(codes_.begin() + static_cast<std::ptrdiff_t>(codec.summable_at()), bytes_ - codec.summable_at(),
                  std::byte{0xFF});
    }
    // What has a residual may need its own code again.
    if (!state_->residual.empty()) own_ = codes_;
    // Averaged where the last of them is added, in f32 and rounded once; what a scale leaves of it is left to the
    // floats.
    const bool averages = scale == 1;
    divisor_ = averages ? 1 : static_cast<float>(comm.world()) * scale;
    const std::size_t head = std::min(codec.summable_at(), bytes_);
    const TypedSpan sum(codes_.data() + head, (bytes_ - head) / size_of(type), type);
    watch({comm.start(
        {.input = sum, .output = sum, .op = averages ? ReduceOp::average : ReduceOp::sum, .priority = priority})});
  }

  bool went_plain(std::size_t) const override { return plain_; }

 private:
  // Decodes on the thread that finishes the all_reduce, mostly while backward still runs.
  std::shared_ptr<Phased> take() override {
    const Codec& codec = *tools_->codec;
    const ConstBytes code = std::span(codes_).first(bytes_);
    std::shared_ptr<Phased> rest;
    if (codec.summable_at() == 0) {  // casts, which carry NaN as it is
      codec.decode(code, bucket_, Combine::replace);
    } else {
      std::vector<float> average(bucket_.size());
      codec.decode(code, average, Combine::replace);
      if (kernel::all_finite(average))
        std::ranges::copy(average, bucket_.begin());
      else
        rest = go_plain();
    }
    if (divisor_ != 1)
      for (float& value : bucket_) value /= divisor_;
    tools_->codes.give_back(std::move(codes_));
    return rest;
  }

  // The same bits everywhere, so all ranks turn off here or none. What was held back stays held back.
  std::shared_ptr<Phased> go_plain() {
    plain_ = true;
    tools_->plain.fetch_add(1);
    if (auto& residual = state_->residual; coded_ && !residual.empty()) {
      std::vector<float> decoded(residual.size());
      tools_->codec->decode(std::span(own_).first(bytes_), decoded, Combine::replace);
      kernel::add(residual.data(), decoded.data(), residual.data(), residual.size());
      kernel::subtract(residual.data(), bucket_.data(), residual.data(), residual.size());
    }
    return plain_slice(*comm_, bucket_, number_);
  }

  const std::shared_ptr<SummableTools> tools_;
  const std::shared_ptr<Residuals::State> state_;
  const std::span<float> bucket_;
  Communicator* comm_ = nullptr;
  std::uint64_t number_ = 0;
  std::vector<std::byte> codes_, own_;
  std::size_t bytes_ = 0;
  bool coded_ = true;
  bool plain_ = false;
  float divisor_ = 1;
};

class SummableExchange final : public Exchange {
 public:
  SummableExchange(Communicator& comm, std::unique_ptr<Codec> codec)
      : comm_(comm),
        tools_(std::make_shared<SummableTools>()),
        residuals_(codec->state_parts(), codec->spec(), comm.world()) {
    if (!codec->summable_as())
      throw Error(ErrorKind::usage, fmt::format("codes of '{}' cannot be added, so they cannot be reduced in transit; "
                                                "use a codec whose codes can, such as bf16",
                                                codec->spec()));
    tools_->codec = std::move(codec);
  }
  std::string_view spec() const override { return tools_->codec->spec(); }
  std::uint64_t plain_buckets() const override { return tools_->plain.load(); }
  std::size_t state_bytes() const override { return residuals_.bytes(); }
  std::vector<std::byte> save(const Bucket& bucket) override {
    return keeps_something() ? residuals_.save(bucket, number_) : std::vector<std::byte>{};
  }
  void restore(const Bucket& bucket, ConstBytes kept) override {
    if (keeps_something()) residuals_.restore(bucket, kept, number_);
  }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto state = tools_->codec->state_parts() > 0 ? residuals_.of(bucket) : std::make_shared<Residuals::State>();
    auto averaging = std::make_shared<SummableAveraging>(tools_, std::move(state), bucket.values);
    averaging->start(comm_, number_++, bucket.priority);
    return averaging;
  }

 private:
  // What is held back, or, where indices follow from it, at least the number.
  bool keeps_something() const { return tools_->codec->state_parts() > 0 || tools_->codec->summable_at() > 0; }

  Communicator& comm_;
  const std::shared_ptr<SummableTools> tools_;
  Residuals residuals_;
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> summable_exchange(Communicator& comm, std::unique_ptr<Codec> codec) {
  return std::make_unique<SummableExchange>(comm, std::move(codec));
}

}  // namespace ranvier
