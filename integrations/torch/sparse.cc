// The sum of sparse tensors: every rank gathers all ranks' indices and values, and adds up what has the same index.
// O(sum of the ranks' non-zeros) bytes arrive at each rank; below some density that is less than a dense all_reduce.
// Every rank adds the same numbers in the same order, so that all end with the same bits.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "integrations/torch/errors.h"
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"
#include "ranvier/error.h"

namespace ranvier::pytorch {
namespace {

// What a rank tells of its tensor before it sends it.
struct Shape {
  static constexpr std::size_t most_dims = 13;
  static constexpr std::size_t words = most_dims + 3;
  std::array<std::int64_t, words> word{};  // non-zeros, sparse dimensions, dimensions, sizes …

  std::int64_t non_zeros() const { return word[0]; }
  bool fits(const Shape& other) const { return std::equal(word.begin() + 1, word.end(), other.word.begin() + 1); }
  std::string text() const {
    std::string sizes;
    for (std::size_t d = 0; d < static_cast<std::size_t>(word[2]); ++d)
      sizes += (d ? " x " : "") + std::to_string(word[3 + d]);
    return sizes + " with " + std::to_string(word[1]) + " sparse dimensions";
  }
};

Shape shape_of(const at::Tensor& tensor, const at::Tensor& indices, const char* title) {
  TORCH_CHECK_VALUE(tensor.dim() <= static_cast<std::int64_t>(Shape::most_dims), title, ": this tensor has ",
                    tensor.dim(), " dimensions, and a sparse one may have ", Shape::most_dims);
  Shape shape;
  shape.word[0] = indices.size(1);
  shape.word[1] = tensor.sparse_dim();
  shape.word[2] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.word.begin() + 3);
  return shape;
}

// All ranks' shapes. They are exchanged before anything else is started, since the sizes of the gathers depend on them.
std::vector<Shape> exchange(Communicator& communicator, const Shape& mine, std::optional<milliseconds> timeout) {
  std::vector<Shape> all(static_cast<std::size_t>(communicator.world()));
  communicator.run({.collective = Collective::all_gather,
                    .input = mine.word,
                    .output = TypedSpan(all.data(), all.size() * Shape::words, DType::i64),
                    .timeout = timeout});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].fits(mine))
      throw Error(ErrorKind::mismatch,
                  "ranvier:sparse_all_reduce: the tensor of rank " + std::to_string(communicator.rank()) + " is " +
                      mine.text() + ", and that of rank " + std::to_string(rank) + " is " + all[rank].text(),
                  static_cast<Rank>(rank));
  return all;
}

// The sum, from all ranks' indices, [sparse dimensions, non-zeros] of one rank after the other, and all their values.
at::Tensor sum(const std::vector<Shape>& shapes, const at::Tensor& indices, const at::Tensor& values,
               at::IntArrayRef sizes) {
  Tensors columns;
  std::int64_t offset = 0;
  for (const Shape& shape : shapes) {
    const std::int64_t count = shape.non_zeros() * shape.word[1];
    columns.push_back(indices.narrow(0, offset, count).view({shape.word[1], shape.non_zeros()}));
    offset += count;
  }
  return at::sparse_coo_tensor(at::cat(columns, 1), values, sizes, values.options().layout(at::kSparse)).coalesce();
}

}  // namespace

intrusive_ptr<c10d::Work> RanvierBackend::all_reduce_sparse(const at::Tensor& tensor,
                                                            const c10d::AllreduceOptions& options) {
  constexpr auto title = "ranvier:sparse_all_reduce";
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), title, ": this tensor is on ", tensor.device(),
                    ", and ranvier takes CPU tensors: pass tensor.cpu()");
  TORCH_CHECK_VALUE(translate(options.reduceOp) == ReduceOp::sum, title, ": sparse tensors can only be summed");
  const auto communicator = require_communicator();
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor input = tensor.coalesce();
  const at::Tensor indices = packed(input.indices());
  const at::Tensor values = packed(input.values());
  const auto timeout = timeout_for(options.timeout);
  ++collectives_;
  const std::vector<Shape> shapes =
      translating_errors([&] { return exchange(*communicator, shape_of(input, indices, title), timeout); });

  const std::int64_t total =
      std::accumulate(shapes.begin(), shapes.end(), std::int64_t{0},
                      [](std::int64_t sum, const Shape& each) { return sum + each.non_zeros(); });
  auto value_sizes = values.sizes().vec();
  value_sizes.front() = total;
  const at::Tensor all_values = at::empty(value_sizes, values.options());
  const at::Tensor all_indices = at::empty({total * input.sparse_dim()}, indices.options());
  const std::size_t a_value = total == 0 ? 0 : elements(all_values).count / static_cast<std::size_t>(total);
  Splits index_splits;
  Splits value_splits;
  for (const Shape& shape : shapes) {
    index_splits.push_back(static_cast<std::size_t>(shape.non_zeros() * input.sparse_dim()));
    value_splits.push_back(static_cast<std::size_t>(shape.non_zeros()) * a_value);
  }

  Call call{c10d::OpType::_ALLREDUCE_SPARSE, title, {tensor}, {indices, values}, {}};
  call.finish = [=] {
    const at::AutoDispatchBelowADInplaceOrView plain_copies;
    tensor.copy_(sum(shapes, all_indices, all_values, tensor.sizes()));
  };
  const std::array requests{Request{.collective = Collective::all_gather,
                                    .input = elements(indices),
                                    .output = elements(all_indices),
                                    .output_splits = index_splits,
                                    .timeout = timeout},
                            Request{.collective = Collective::all_gather,
                                    .input = elements(values),
                                    .output = elements(all_values),
                                    .output_splits = value_splits,
                                    .timeout = timeout}};
  return launch(std::move(call), requests, options.asyncOp);
}

}  // namespace ranvier::pytorch
