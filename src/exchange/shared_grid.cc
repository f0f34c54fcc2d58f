// Integers on a grid that all ranks share: their sum is the code of the sum, so an all_reduce of bytes adds them up
// wherever it goes, in a switch as well. Blocks of 1024 values are spread by a randomized Hadamard transform (the same
// signs on all ranks), which makes them nearly normal, and rounded to L levels within +-t norms of the block, the best
// uniform grid for normal values; what lies beyond counts as the end. What is lost is kept and sent later. Li, Ben
// Basat, Vargaftik, Lao, Xu, Mitzenmacher and Yu, "THC: Accelerating Distributed Deep Learning Using Tensor
// Homomorphic Compression", NSDI 2024 (arXiv:2302.08545), here with its uniform table.
//
// A field of b bits holds the sum of W codes if W (L - 1) < 2^b, which is what L follows from: 8 bits for 4 ranks are
// 64 levels, 4 bits are 4. The norms have to be common too: the largest of all ranks, by an all_reduce that THC does
// first and waits for. Here it goes along with the codes, for the next step; the first step goes as f32. Norms change
// slowly, and what a grid of the last step is too small for, error feedback brings later.
#include "ranvier/shared_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <vector>

#include "exchange/coded_slice.h"
#include "exchange/collective_averaging.h"
#include "exchange/residuals.h"
#include "kernel/hadamard.h"
#include "kernel/vectors.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier {
std::uint32_t SharedGrid::levels_for(unsigned bits, Rank world) {
  return ((1U << bits) - 1) / static_cast<std::uint32_t>(world) + 1;
}

// The step of the uniform quantizer with the least squared error of a normal variable: J. Max, "Quantizing for Minimum
// Distortion", IRE Trans. Information Theory 1960, table II, continued to 256 levels by the same minimization; half of
// the range that L of them take. Between powers of two, in proportion to log L.
float SharedGrid::half_range(std::uint32_t levels) {
  constexpr std::array<float, 8> by_bits{0.798F, 1.494F, 2.051F, 2.514F, 2.916F, 3.278F, 3.611F, 3.922F};
  const float at = std::log2(static_cast<float>(levels)) - 1;
  const auto below = std::min(static_cast<std::size_t>(at), by_bits.size() - 2);
  return std::lerp(by_bits[below], by_bits[below + 1], at - static_cast<float>(below));
}

SharedGrid::SharedGrid(unsigned bits, Rank world)
    : bits_(bits), levels_(levels_for(bits, world)), half_range_(half_range(std::max(levels_, 2U))) {
  if (levels_ < 2)
    throw Error(ErrorKind::usage,
                fmt::format("'thc:{}' adds codes in fields of {} bits, which hold no sum of {} ranks; {}", bits, bits,
                            world, bits == 4 && world < 256 ? "write thc:8" : "use a codec such as int4 instead"));
}

bool SharedGrid::spread(std::span<float> values, std::span<float> norms, std::uint32_t seed) {
  // Beyond 2^50, and of what is not finite, there is no code: an infinite norm, the largest there is, tells all ranks.
  if (!(kernel::largest_magnitude(values.data(), values.size()) <= largest_codable)) {
    std::ranges::fill(norms, std::numeric_limits<float>::infinity());
    return false;
  }
  kernel::hadamard(values.data(), values.size(), block, seed);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const std::size_t size = std::min(block, values.size() - i * block);
    norms[i] = static_cast<float>(std::sqrt(kernel::sum_of_squares(values.data() + i * block, size)));
  }
  return true;
}

void SharedGrid::gather(std::span<float> values, std::uint32_t seed) {
  kernel::inverse_hadamard(values.data(), values.size(), block, seed);
}

std::size_t SharedGrid::bytes(std::size_t count) const { return bits_ == 8 ? count : (count + 1) / 2; }

void SharedGrid::encode(std::span<const float> values, std::span<const float> norms,
                        std::span<std::uint8_t> codes) const {
  const auto top = static_cast<float>(levels_ - 1);
  std::ranges::fill(codes, std::uint8_t{0});
  constexpr float half = 0.5F;  // rounds up what is cut off afterwards; lround() would not be vectorized
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(begin + block, values.size());
    const float reach = reach_of(norms[begin / block], end - begin);
    // Of a reach so small that its inverse is none, everything is 0.
    const float inverse = reach > 0 ? top / 2 / reach : 0, scale = std::isfinite(inverse) ? inverse : 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float place = std::clamp(values[i] * scale + top / 2, 0.0F, top);
      const auto code = static_cast<std::uint8_t>(place + half);
      if (bits_ == 8)
        codes[i] = code;
      else
        codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | code << (i % 2 * 4));
    }
  }
}

void SharedGrid::decode(std::span<const std::uint8_t> codes, std::span<const float> norms, Rank summed,
                        std::span<float> values) const {
  const auto top = static_cast<float>(levels_ - 1);
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(begin + block, values.size());
    const float step = 2 * reach_of(norms[begin / block], end - begin) / top;
    const float middle = static_cast<float>(summed) * top / 2;
    for (std::size_t i = begin; i < end; ++i) {
      const unsigned code = bits_ == 8 ? codes[i] : codes[i / 2] >> (i % 2 * 4) & 15U;
      values[i] = (static_cast<float>(code) - middle) * step;
    }
  }
}

float SharedGrid::reach_of(float norm, std::size_t count) const {
  return half_range_ * norm / std::sqrt(static_cast<float>(count));
}

namespace {

std::size_t blocks_in(std::size_t values) { return (values + SharedGrid::block - 1) / SharedGrid::block; }

// What is kept of a bucket beside its residual: the norms that all ranks have agreed on, none at first.
struct Norms {
  std::vector<float> shared, next;
};

struct GridTools {
  GridTools(unsigned bits, Rank world) : grid(bits, world) {}
  const SharedGrid grid;
  std::atomic<std::uint64_t> plain = 0;
};

class GridAveraging final : public CollectiveAveraging {
 public:
  GridAveraging(Communicator& comm, std::shared_ptr<GridTools> tools, std::shared_ptr<Residuals::State> state,
                std::shared_ptr<Norms> norms, std::span<float> bucket, std::uint64_t number)
      : comm_(comm),
        tools_(std::move(tools)),
        state_(std::move(state)),
        norms_(std::move(norms)),
        bucket_(bucket),
        number_(number),
        seed_(static_cast<std::uint32_t>(seed_of(number, 0, 1))) {}

  void start(int priority) {
    ++state_->step;
    coded_ = !norms_->shared.empty();
    work_.resize(bucket_.size());
    kernel::add(bucket_.data(), state_->residual.data(), work_.data(), work_.size());
    norms_->next.resize(blocks_in(work_.size()));
    has_code_ = SharedGrid::spread(work_, norms_->next, seed_);
    std::vector<Work> works;
    works.push_back(
        comm_.start({.input = norms_->next, .output = norms_->next, .op = ReduceOp::max, .priority = priority}));
    works.push_back(coded_ ? start_codes(priority) : start_floats(priority));
    watch(std::move(works));
  }

 private:
  Work start_codes(int priority) {
    own_.resize(tools_->grid.bytes(bucket_.size()));
    sum_.resize(own_.size());
    if (has_code_) tools_->grid.encode(work_, norms_->shared, own_);
    const auto size = own_.size();
    return comm_.start({.input = ConstTypedSpan(own_.data(), size, DType::u8),
                        .output = TypedSpan(sum_.data(), size, DType::u8),
                        .op = ReduceOp::sum,
                        .priority = priority});
  }
  Work start_floats(int priority) {
    return comm_.start({.input = bucket_, .output = bucket_, .op = ReduceOp::average, .priority = priority});
  }

  std::shared_ptr<Phased> take() override {
    const bool all_have_codes = std::ranges::all_of(norms_->next, [](float norm) { return std::isfinite(norm); });
    if (!all_have_codes) {
      tools_->plain.fetch_add(1);
      return coded_ ? plain_slice(comm_, bucket_, number_) : nullptr;  // the first step has gone as floats
    }
    if (coded_) add_up();
    norms_->shared.swap(norms_->next);
    return nullptr;
  }

  // Decoded own codes and the decoded sum go back through the transform; residual = values + residual - own.
  void add_up() {
    const std::size_t count = bucket_.size();
    float* const residual = state_->residual.data();
    kernel::add(residual, bucket_.data(), residual, count);
    tools_->grid.decode(own_, norms_->shared, 1, work_);
    SharedGrid::gather(work_, seed_);
    kernel::subtract(residual, work_.data(), residual, count);
    tools_->grid.decode(sum_, norms_->shared, comm_.world(), bucket_);
    SharedGrid::gather(bucket_, seed_);
    kernel::multiply(bucket_.data(), 1 / static_cast<float>(comm_.world()), bucket_.data(), count);
  }

  Communicator& comm_;
  const std::shared_ptr<GridTools> tools_;
  const std::shared_ptr<Residuals::State> state_;
  const std::shared_ptr<Norms> norms_;
  const std::span<float> bucket_;
  const std::uint64_t number_;
  const std::uint32_t seed_;
  bool coded_ = false;
  bool has_code_ = true;
  std::vector<float> work_;
  std::vector<std::uint8_t> own_, sum_;
};

class GridExchange final : public Exchange {
 public:
  GridExchange(Communicator& comm, std::string spec, unsigned bits)
      : comm_(comm), spec_(std::move(spec)), tools_(std::make_shared<GridTools>(bits, comm.world())) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return tools_->plain.load(); }
  std::size_t state_bytes() const override {
    std::size_t bytes = residuals_.bytes();
    for (const auto& [id, norms] : norms_) bytes += 2 * norms->shared.size() * sizeof(float);
    return bytes;
  }
  // Behind what is held back the norms that all ranks have agreed on, so that the next step is coded, too.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto all = residuals_.save(bucket, number_);
    Residuals::append(all, std::as_bytes(std::span(norms_of(*residuals_.of(bucket))->shared)));
    return all;
  }
  // What another codec has kept there is of another length. In another world a step that goes as f32 finds norms again:
  // ranks may have come that bring none.
  void restore(const Bucket& bucket, ConstBytes kept) override {
    const ConstBytes shared = residuals_.restore(bucket, kept, number_);
    auto& norms = norms_of(*residuals_.of(bucket));
    norms = std::make_shared<Norms>();
    if (!residuals_.is_of_this_world(kept) || shared.size() != blocks_in(bucket.values.size()) * sizeof(float)) return;
    norms->shared.resize(shared.size() / sizeof(float));
    std::memcpy(norms->shared.data(), shared.data(), shared.size());
  }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto state = residuals_.of(bucket);
    const auto norms = norms_of(*state);
    auto averaging = std::make_shared<GridAveraging>(comm_, tools_, std::move(state), norms, bucket.values, number_++);
    averaging->start(bucket.priority);
    return averaging;
  }

 private:
  // A bucket that is another one now has other blocks.
  std::shared_ptr<Norms>& norms_of(const Residuals::State& state) {
    auto& norms = norms_[state.tensors.front().id];
    if (!norms || norms->shared.size() != blocks_in(state.residual.size())) norms = std::make_shared<Norms>();
    return norms;
  }

  Communicator& comm_;
  const std::string spec_;
  const std::shared_ptr<GridTools> tools_;
  Residuals residuals_{1, spec_, comm_.world()};
  std::unordered_map<std::uint64_t, std::shared_ptr<Norms>> norms_;  // by the first tensor of their bucket
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> shared_grid_exchange(Communicator& comm, std::string spec, unsigned bits) {
  return std::make_unique<GridExchange>(comm, std::move(spec), bits);
}

}  // namespace ranvier
