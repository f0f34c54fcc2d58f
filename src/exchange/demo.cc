// DeMo: each rank has a momentum of its own, d <- beta d + g. Of each chunk of 64 x 64 values of a matrix, the discrete
// cosine transform's largest coefficients are sent to everybody and taken from d, so that what moves fast is shared at
// once and what moves slowly stays until it is large. Everybody applies the signs of what came. Peng, Quesnelle and
// Kingma, "DeMo: Decoupled Momentum Optimization" (arXiv:2411.19870).
//
// The learning rate, by which the paper multiplies g, is left to the optimizer: signs do not depend on it as long as it
// does not change within the memory of d. A chunk's sides are the largest divisors of the matrix's up to 64, as in the
// authors' code.
#include "ranvier/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "codec/cosines.h"
#include "codec/top_k.h"
#include "exchange/coded_slice.h"
#include "exchange/collective_averaging.h"
#include "exchange/residuals.h"
#include "kernel/vectors.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::size_t most_side = 64;
constexpr std::size_t most_values = most_side * most_side;
// A code: a byte, 1 if it is one; then of each chunk its indices, 2 bytes each, ascending, and its coefficients, f32.
constexpr std::size_t head_bytes = 1, index_bytes = sizeof(std::uint16_t), kept_bytes = index_bytes + sizeof(float);

using Chunk = std::array<float, most_values>;

std::size_t side_of(std::size_t length, std::size_t most) {
  for (std::size_t side = std::min(length, most); side > 1; --side)
    if (length % side == 0) return side;
  return 1;
}

// to = left * from * right, of `rows` x `columns`; `left` and `right` are square.
void between(const float* left, const float* from, const float* right, std::size_t rows, std::size_t columns,
             float* to) {
  Chunk half;
  std::fill_n(half.data(), rows * columns, 0.0F);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      kernel::add_multiple(right + j * columns, from[i * columns + j], half.data() + i * columns, columns);
  std::fill_n(to, rows * columns, 0.0F);
  for (std::size_t k = 0; k < rows; ++k)
    for (std::size_t i = 0; i < rows; ++i)
      kernel::add_multiple(half.data() + i * columns, left[k * rows + i], to + k * columns, columns);
}

}  // namespace

Demo::Demo(const DemoOptions& options, std::span<const Tensor> tensors) : options_(options) {
  std::size_t begin = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.size() == 0) continue;
    const std::size_t rows = side_of(tensor.rows, options.chunk), columns = side_of(tensor.columns, options.chunk);
    matrices_.push_back({begin, tensor.rows, tensor.columns, rows, columns, std::min(options.kept, rows * columns)});
    begin += tensor.size();
    code_bytes_ += tensor.size() / (rows * columns) * matrices_.back().kept * kept_bytes;
    for (const std::size_t size : {rows, columns}) {
      if (cosines_.contains(size)) continue;
      Cosines tables = cosines_of(size);
      cosines_[size] = std::move(tables.by_cosine);
      transposed_[size] = std::move(tables.by_place);
    }
  }
}

// body(matrix, place of the chunk's first value in the bucket)
template <class Body>
void Demo::each_chunk(const Body& body) const {
  for (const Matrix& matrix : matrices_)
    for (std::size_t row = 0; row < matrix.rows; row += matrix.chunk_rows)
      for (std::size_t column = 0; column < matrix.columns; column += matrix.chunk_columns)
        body(matrix, matrix.begin + row * matrix.columns + column);
}

void Demo::forward(const Matrix& matrix, const float* chunk, float* coefficients) const {
  between(cosines_.at(matrix.chunk_rows).data(), chunk, transposed_.at(matrix.chunk_columns).data(), matrix.chunk_rows,
          matrix.chunk_columns, coefficients);
}
void Demo::backward(const Matrix& matrix, const float* coefficients, float* chunk) const {
  between(transposed_.at(matrix.chunk_rows).data(), coefficients, cosines_.at(matrix.chunk_columns).data(),
          matrix.chunk_rows, matrix.chunk_columns, chunk);
}

void Demo::encode(std::span<const float> values, std::span<float> momentum, Bytes code) const {
  std::ranges::fill(code, std::byte{0});
  if (!(kernel::largest_magnitude(values.data(), values.size()) <= largest_codable)) return;
  kernel::multiply(momentum.data(), static_cast<float>(options_.decay), momentum.data(), momentum.size());
  kernel::add(momentum.data(), values.data(), momentum.data(), momentum.size());
  code[0] = std::byte{1};
  std::byte* to = code.data() + head_bytes;
  Chunk chunk, coefficients;
  std::vector<std::uint32_t> chosen;
  each_chunk([&](const Matrix& matrix, std::size_t place) {
    const std::size_t columns = matrix.chunk_columns, count = matrix.chunk_rows * columns;
    float* const first = momentum.data() + place;
    for (std::size_t i = 0; i < matrix.chunk_rows; ++i)
      std::copy_n(first + i * matrix.columns, columns, chunk.data() + i * columns);
    forward(matrix, chunk.data(), coefficients.data());
    choose_top_k(std::span(coefficients).first(count), matrix.kept, chosen, Zeros::taken);
    std::byte* numbers = to + matrix.kept * index_bytes;
    Chunk sent{};
    for (const std::uint32_t index : chosen) {
      const auto narrow = static_cast<std::uint16_t>(index);
      std::memcpy(to, &narrow, index_bytes);
      std::memcpy(numbers, &coefficients[index], sizeof(float));
      sent[index] = coefficients[index];
      to += index_bytes;
      numbers += sizeof(float);
    }
    to = numbers;
    backward(matrix, sent.data(), chunk.data());
    for (std::size_t i = 0; i < matrix.chunk_rows; ++i)
      kernel::subtract(first + i * matrix.columns, chunk.data() + i * columns, first + i * matrix.columns, columns);
  });
}

bool Demo::decode(ConstBytes codes, std::span<float> values) const {
  const std::size_t ranks = codes.size() / code_bytes_;
  if (ranks == 0 || codes.size() % code_bytes_ != 0)
    throw Error(ErrorKind::mismatch, fmt::format("'demo' expects codes of {} bytes and has {} bytes of them; give the "
                                                 "same spec and buckets to every rank",
                                                 code_bytes_, codes.size()));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (codes[rank * code_bytes_] == std::byte{0}) return false;
  average(codes, values);
  if (options_.sign)
    for (float& value : values) value = value > 0 ? 1.0F : value < 0 ? -1.0F : 0.0F;
  return true;
}

void Demo::take_back(std::span<const float> values, ConstBytes code, std::span<float> momentum) const {
  if (code[0] == std::byte{0}) return;
  std::vector<float> sent(values.size());
  average(code, sent);
  kernel::add(momentum.data(), sent.data(), momentum.data(), momentum.size());
  kernel::subtract(momentum.data(), values.data(), momentum.data(), momentum.size());
}

void Demo::average(ConstBytes codes, std::span<float> values) const {
  const std::size_t ranks = codes.size() / code_bytes_;
  std::size_t at = head_bytes;
  Chunk chunk;
  each_chunk([&](const Matrix& matrix, std::size_t place) {
    const std::size_t columns = matrix.chunk_columns, count = matrix.chunk_rows * columns;
    Chunk sums{}, senders{};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::byte* const from = codes.data() + rank * code_bytes_ + at;
      for (std::size_t i = 0; i < matrix.kept; ++i) {
        std::uint16_t index = 0;
        float number = 0;
        std::memcpy(&index, from + i * index_bytes, index_bytes);
        std::memcpy(&number, from + matrix.kept * index_bytes + i * sizeof(float), sizeof(float));
        if (index >= count)
          throw Error(ErrorKind::mismatch, fmt::format("a code by 'demo' has the index {} of {} coefficients; give the "
                                                       "same spec and buckets to every rank",
                                                       index, count));
        sums[index] += number;
        senders[index] += 1;
      }
    }
    for (std::size_t i = 0; i < count; ++i) sums[i] /= std::max(senders[i], 1.0F);
    backward(matrix, sums.data(), chunk.data());
    for (std::size_t i = 0; i < matrix.chunk_rows; ++i)
      std::copy_n(chunk.data() + i * columns, columns, values.data() + place + i * matrix.columns);
    at += matrix.kept * kept_bytes;
  });
}

namespace {

class DemoAveraging final : public CollectiveAveraging {
 public:
  DemoAveraging(Communicator& comm, std::shared_ptr<const Demo> demo, std::shared_ptr<Residuals::State> state,
                std::span<float> bucket, std::uint64_t number, std::shared_ptr<std::atomic<std::uint64_t>> plain)
      : comm_(comm),
        demo_(std::move(demo)),
        state_(std::move(state)),
        bucket_(bucket),
        number_(number),
        plain_(std::move(plain)) {}

  void start(int priority) {
    ++state_->step;
    own_.resize(demo_->code_bytes());
    all_.resize(own_.size() * static_cast<std::size_t>(comm_.world()));
    demo_->encode(bucket_, state_->residual, own_);
    watch({comm_.start({.collective = Collective::all_gather,
                        .input = ConstTypedSpan(own_.data(), own_.size(), DType::u8),
                        .output = TypedSpan(all_.data(), all_.size(), DType::u8),
                        .priority = priority})});
  }

 private:
  std::shared_ptr<Phased> take() override {
    if (demo_->decode(all_, bucket_)) return nullptr;
    plain_->fetch_add(1);
    demo_->take_back(bucket_, own_, state_->residual);
    return plain_slice(comm_, bucket_, number_);
  }

  Communicator& comm_;
  const std::shared_ptr<const Demo> demo_;
  const std::shared_ptr<Residuals::State> state_;  // its residual is the momentum
  const std::span<float> bucket_;
  const std::uint64_t number_;
  const std::shared_ptr<std::atomic<std::uint64_t>> plain_;
  std::vector<std::byte> own_, all_;
};

class DemoExchange final : public Exchange {
 public:
  DemoExchange(Communicator& comm, std::string spec, const DemoOptions& options)
      : comm_(comm), spec_(std::move(spec)), options_(options) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return plain_->load(); }
  std::size_t state_bytes() const override { return residuals_.bytes(); }
  double momentum() const override { return options_.decay; }
  std::vector<std::byte> save(const Bucket& bucket) override { return residuals_.save(bucket, number_); }
  void restore(const Bucket& bucket, ConstBytes kept) override { residuals_.restore(bucket, kept, number_); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto state = residuals_.of(bucket);
    auto& [tensors, demo] = known_[state->tensors.front().id];
    const auto are_same = [](const Tensor& a, const Tensor& b) { return a.rows == b.rows && a.columns == b.columns; };
    // Another bucket may begin with the same tensor.
    if (!demo || !std::ranges::equal(tensors, state->tensors, are_same)) {
      tensors = state->tensors;
      demo = std::make_shared<const Demo>(options_, tensors);
    }
    auto averaging = std::make_shared<DemoAveraging>(comm_, demo, std::move(state), bucket.values, number_++, plain_);
    averaging->start(bucket.priority);
    return averaging;
  }

 private:
  struct Known {
    std::vector<Tensor> tensors;
    std::shared_ptr<const Demo> demo;
  };
  Communicator& comm_;
  const std::string spec_;
  const DemoOptions options_;
  const std::shared_ptr<std::atomic<std::uint64_t>> plain_ = std::make_shared<std::atomic<std::uint64_t>>();
  Residuals residuals_{1, spec_, comm_.world()};
  std::unordered_map<std::uint64_t, Known> known_;  // by the first tensor of a bucket
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> demo_exchange(Communicator& comm, std::string spec, const DemoOptions& options) {
  return std::make_unique<DemoExchange>(comm, std::move(spec), options);
}

}  // namespace ranvier
