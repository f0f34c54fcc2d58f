// Scatter, reduce, gather of codes: a gradient is encoded once on its way to the owner of its part, and the sum once on
// its way back. A ring would encode W - 1 times, each time with an error. Slices of a bucket go one behind the other,
// so that one is encoded while the one before travels.
//
// The owner has error feedback of its own for the sum, as in Tang et al., "1-bit Adam", ICML 2021 (arXiv:2102.02888);
// the way itself is that of Wang et al., "ZeRO++", ICLR 2024 (arXiv:2306.10209), and CGX (Markov et al., Middleware
// 2022). With a sparsifier, owners choose anew among the sums, as in Li and Hoefler, "Near-Optimal Sparse Allreduce",
// PPoPP 2022 (arXiv:2201.07598), whose regions need balancing, while here each part chooses its own share.
//
// Where codes are so short that latency decides, a slice goes by all_gather instead: see gathered_slice.h.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/gathered_slice.h"
#include "exchange/residuals.h"
#include "exchange/staged_averaging.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

// DGC's local clipping, of one tensor. What is not finite stays as it is, and goes plain.
void clip(std::span<float> values, double most) {
  const double norm = std::sqrt(kernel::sum_of_squares(values.data(), values.size()));
  if (std::isfinite(norm) && norm > most)
    kernel::multiply(values.data(), static_cast<float>(most / norm), values.data(), values.size());
}

std::shared_ptr<CodedTools> tools_of(std::shared_ptr<const Codec> codec) {
  auto tools = std::make_shared<CodedTools>();
  auto sums = codec->for_sums();
  tools->sums = sums ? std::move(sums) : codec;
  tools->codec = std::move(codec);
  return tools;
}

// The part of a bucket that is a slice, and what is kept of it.
struct Cut {
  std::span<float> values;
  CodecState state;
  std::vector<TensorPiece> pieces;
};
Cut cut_out(std::span<float> values, const CodecState& state, std::span<const TensorPiece> pieces, std::size_t begin,
            std::size_t size) {
  const auto part = [&](std::span<float> whole) { return whole.empty() ? whole : whole.subspan(begin, size); };
  return {.values = values.subspan(begin, size),
          .state = {.residual = part(state.residual), .velocity = part(state.velocity)},
          .pieces = cut(pieces, begin, size)};
}

std::shared_ptr<Phased> make_slice(bool gathers, Communicator& comm, const std::shared_ptr<CodedTools>& tools, Cut cut,
                                   std::uint64_t number, std::uint64_t step) {
  if (gathers)
    return std::make_shared<GatheredSlice>(comm, tools, cut.values, cut.state, number, step, std::move(cut.pieces));
  return std::make_shared<CodedSlice>(comm, tools, cut.values, cut.state, number, step, std::move(cut.pieces));
}

// Also where one has failed: the others write until they end into memory that the caller takes back then.
void wait_until_over(const std::vector<std::shared_ptr<Phased>>& slices) {
  for (const auto& slice : slices) {
    try {
      slice->wait();
    } catch (...) {
    }
  }
}

class CodedAveraging final : public StagedAveraging {
 public:
  CodedAveraging(std::shared_ptr<Residuals::State> state, std::vector<std::shared_ptr<Phased>> slices)
      : state_(std::move(state)), slices_(std::move(slices)), left_(slices_.size() + 1) {}

  void start() {
    const auto one_less = [this, self = shared_from_this()] {
      if (left_.fetch_sub(1) == 1) complete();
    };
    for (const auto& slice : slices_) slice->start(one_less);
    one_less();
  }
  void wait() override {
    wait_until_over(slices_);  // complete() finds what one has failed with
    StagedAveraging::wait();
  }
  bool went_plain(std::size_t value) const override { return slices_[value / slice_values]->went_plain(); }

 private:
  void complete() {
    for (const auto& slice : slices_)
      if (slice->error()) return finish(slice->error());
    finish(nullptr);
  }

  const std::shared_ptr<Residuals::State> state_;  // lives as long as the slices that view it
  const std::vector<std::shared_ptr<Phased>> slices_;
  std::atomic<std::size_t> left_;
};

class CodedExchange final : public Exchange {
 public:
  CodedExchange(Communicator& comm, std::unique_ptr<Codec> codec)
      : comm_(comm),
        tools_(tools_of(std::move(codec))),
        residuals_(tools_->codec->state_parts(), tools_->codec->spec(), comm.world()) {}
  std::string_view spec() const override { return tools_->codec->spec(); }
  std::uint64_t plain_buckets() const override { return tools_->plain.load(); }
  std::size_t state_bytes() const override { return residuals_.bytes(); }
  double momentum() const override { return tools_->codec->momentum(); }
  std::vector<std::byte> save(const Bucket& bucket) override { return residuals_.save(bucket, number_); }
  void restore(const Bucket& bucket, ConstBytes kept) override { residuals_.restore(bucket, kept, number_); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto state = residuals_.of(bucket);
    if (const double norm = tools_->codec->clipping_norm(); norm > 0) {
      auto rest = bucket.values;
      for (const Tensor& tensor : state->tensors) {
        clip(rest.first(tensor.size()), norm / std::sqrt(comm_.world()));
        rest = rest.subspan(tensor.size());
      }
    }
    std::vector<TensorPiece> pieces;  // of the bucket
    if (tools_->codec->chooses_by_tensor())
      for (const Tensor& tensor : state->tensors) pieces.push_back({.size = tensor.size(), .of = tensor.size()});
    std::vector<std::shared_ptr<Phased>> slices;
    for (std::size_t begin = 0; begin < bucket.values.size(); begin += slice_values) {
      const std::size_t size = std::min(slice_values, bucket.values.size() - begin);
      Cut slice =
          cut_out(bucket.values, {.residual = state->residual, .velocity = state->velocity}, pieces, begin, size);
      slices.push_back(make_slice(goes_by_all_gather(size), comm_, tools_, std::move(slice), number_++, state->step));
    }
    ++state->step;
    auto averaging = std::make_shared<CodedAveraging>(std::move(state), std::move(slices));
    averaging->start();
    return averaging;
  }

 private:
  bool goes_by_all_gather(std::size_t count) const {
    const Way way = tools_->codec->way();
    if (comm_.world() == 1 || way == Way::reduce_scatter) return false;
    return way == Way::all_gather ||
           all_gather_is_cheaper(comm_.links(), comm_.world(), static_cast<double>(tools_->codec->max_bytes(count)));
  }

  Communicator& comm_;
  const std::shared_ptr<CodedTools> tools_;
  Residuals residuals_;
  std::uint64_t number_ = 0;  // of the next slice; the same on all ranks
};

// Of one bucket that somebody waits for. A slice has to be worth its messages: codes of it may have 512 KiB at least.
constexpr std::size_t least_code = std::size_t{1} << 19;
// Their codes and sums take memory; more of them would not be faster.
constexpr std::size_t most_under_way = 8;
// How many slices a bucket's number has room for.
constexpr int slice_bits = 20;

}  // namespace

CodedAverages::CodedAverages(std::shared_ptr<const Codec> codec) : tools_(tools_of(std::move(codec))) {}

std::size_t CodedAverages::slice_size(std::size_t count) const {
  const std::size_t by_code = tools_->codec->max_bytes(count) / least_code;
  const std::size_t by_size = (count + slice_values - 1) / slice_values;
  const std::size_t slices = std::max({by_code, by_size, std::size_t{1}});
  return ((count + slices - 1) / slices + part_alignment - 1) / part_alignment * part_alignment;
}

CodedAverages::Outcome CodedAverages::average(Communicator& comm, std::span<float> values, CodecState state,
                                              std::uint64_t number, std::uint64_t step,
                                              std::span<const TensorPiece> pieces) {
  const bool gathers = tools_->codec->way() == Way::all_gather && comm.world() > 1;
  const std::size_t most = slice_size(values.size());
  std::vector<std::shared_ptr<Phased>> slices;
  try {
    for (std::size_t begin = 0; begin < values.size(); begin += most) {
      if (slices.size() >= most_under_way) slices[slices.size() - most_under_way]->wait();
      Cut slice = cut_out(values, state, pieces, begin, std::min(most, values.size() - begin));
      const std::uint64_t slice_number = (number << slice_bits) + slices.size();
      slices.push_back(make_slice(gathers, comm, tools_, std::move(slice), slice_number, step));
      slices.back()->start([] {});
    }
    for (const auto& slice : slices) slice->wait();
  } catch (...) {
    wait_until_over(slices);
    throw;
  }
  Outcome outcome;
  for (const auto& slice : slices) {
    outcome.went_plain = outcome.went_plain || slice->went_plain();
    outcome.bytes_sent += slice->bytes_sent();
  }
  return outcome;
}

std::unique_ptr<Exchange> coded_exchange(Communicator& comm, std::unique_ptr<Codec> codec) {
  return std::make_unique<CodedExchange>(comm, std::move(codec));
}

}  // namespace ranvier
