// DeMo: momentum that is not synchronized, but for the components that move most: the arithmetic, apart from how codes
// travel. src/exchange/demo.cc has the exchange and the source; the hook of the Python package does the same over any
// process group.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ranvier/exchange.h"

namespace ranvier {

// Of a bucket of these tensors.
class Demo {
 public:
  Demo(const DemoOptions& options, std::span<const Tensor> tensors);

  // Of a code; the same on all ranks.
  std::size_t code_bytes() const { return code_bytes_; }
  // momentum <- decay * momentum + values; the largest coefficients of each of its chunks go into `code`, and are taken
  // from it. Where a value is NaN, infinite or beyond 2^50, momentum stays as it is, and the code says that it is none.
  void encode(std::span<const float> values, std::span<float> momentum, Bytes code) const;
  // The codes of all ranks, one after the other: what they make of each coefficient on average over those that sent it,
  // transformed back, and of that the signs. The same bits on every machine. False, and nothing done, where one is
  // none. Throws Error{mismatch} for codes that no encoder writes.
  bool decode(ConstBytes codes, std::span<float> values) const;
  // Undoes encode(), of which `code` came, but for the decay: the values reached everybody in another way.
  void take_back(std::span<const float> values, ConstBytes code, std::span<float> momentum) const;

 private:
  struct Matrix {
    std::size_t begin, rows, columns;       // in the bucket
    std::size_t chunk_rows, chunk_columns;  // both divide the matrix
    std::size_t kept;                       // of each chunk
  };
  using Table = std::vector<float>;

  template <class Body>
  void each_chunk(const Body& body) const;
  void average(ConstBytes codes, std::span<float> values) const;
  void forward(const Matrix& matrix, const float* chunk, float* coefficients) const;
  void backward(const Matrix& matrix, const float* coefficients, float* chunk) const;

  DemoOptions options_;
  std::vector<Matrix> matrices_;
  std::map<std::size_t, Table> cosines_, transposed_;  // by length; row k is cosine k, row i all cosines at place i
  std::size_t code_bytes_ = 1;
};

std::unique_ptr<Exchange> demo_exchange(Communicator& comm, std::string spec, const DemoOptions& options);

}  // namespace ranvier
