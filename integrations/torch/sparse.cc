// The sum of sparse tensors: every rank gets all ranks' indices and values, and adds up what has the same index.
// O(sum of the ranks' non-zeros) bytes arrive at each rank; below some density that is less than a dense all_reduce.
// Every rank adds the same numbers in the same order, so that all end with the same bits.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>

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

// No tags of a user's messages, which are ints, nor of monitored_barrier.
constexpr std::uint64_t first_tag = std::uint64_t{1} << 41;

// One sum under way: first all ranks' shapes are gathered, and then what these say how much it is. The second step
// comes when the first has ended, at another time on every rank: so it has to be messages, since collectives have one
// order.
struct Summing {
  const std::uint64_t number;  // among these sums, the same on all ranks
  const std::optional<milliseconds> timeout;
  const at::Tensor indices;  // this rank's, …
  const at::Tensor values;
  const Shape mine;
  std::vector<Shape> shapes;  // … and all ranks'
  at::Tensor all_indices;
  at::Tensor all_values;

  // `sequence`: of the collective that gathered them.
  void check(const Communicator& communicator, std::uint32_t sequence) const {
    for (std::size_t rank = 0; rank < shapes.size(); ++rank)
      if (!shapes[rank].fits(mine))
        throw Error(ErrorKind::mismatch,
                    "ranvier:sparse_all_reduce #" + std::to_string(sequence) + ": the tensor of " +
                        communicator.rank_name(communicator.rank()) + " is " + mine.text() + ", and that of " +
                        communicator.rank_name(static_cast<Rank>(rank)) + " is " + shapes[rank].text() +
                        "; pass tensors of one shape",
                    static_cast<Rank>(rank))
            .with_flight_record(communicator.flight_record());
  }

  void make_room() {
    const std::int64_t total =
        std::accumulate(shapes.begin(), shapes.end(), std::int64_t{0},
                        [](std::int64_t sum, const Shape& each) { return sum + each.non_zeros(); });
    auto sizes = values.sizes().vec();
    sizes.front() = total;
    all_values = at::empty(sizes, values.options());
    all_indices = at::empty({total * mine.word[1]}, indices.options());
  }

  // This rank's non-zeros to all others, and theirs to their places here.
  void exchange(Communicator& communicator, PendingWork& work) {
    const std::uint64_t tag = first_tag + 2 * number;
    std::int64_t offset = 0;
    for (Rank rank = 0; rank < communicator.world(); ++rank) {
      const std::int64_t count = shapes[static_cast<std::size_t>(rank)].non_zeros();
      const at::Tensor index_place = all_indices.narrow(0, offset * mine.word[1], count * mine.word[1]);
      const at::Tensor value_place = all_values.narrow(0, offset, count);
      offset += count;
      if (rank == communicator.rank()) {
        index_place.copy_(indices.reshape({-1}));
        value_place.copy_(values);
        continue;
      }
      const auto both = [&](const at::Tensor& own, const at::Tensor& place, std::uint64_t its_tag) {
        if (mine.non_zeros() > 0)
          work.add([&] { return communicator.start_send(elements(own), rank, its_tag, timeout, label_of(own)); });
        if (count > 0)
          work.add([&] { return communicator.start_recv(elements(place), rank, its_tag, timeout, label_of(own)); });
      };
      both(indices, index_place, tag);
      both(values, value_place, tag + 1);
    }
  }
};

}  // namespace

intrusive_ptr<c10d::Work> RanvierBackend::all_reduce_sparse(const at::Tensor& tensor,
                                                            const c10d::AllreduceOptions& options) {
  constexpr auto title = "ranvier:sparse_all_reduce";
  TORCH_CHECK_VALUE(translate(options.reduceOp) == ReduceOp::sum, title, ": sparse tensors can only be summed");
  const auto communicator = require_communicator();
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor input = tensor.coalesce();
  const at::Tensor indices = packed(input.indices());
  const at::Tensor values = packed(input.values());
  const Shape mine = shape_of(input, indices, title);
  const auto summing = std::make_shared<Summing>(Summing{.number = sparse_sums_++,
                                                         .timeout = timeout_for(options.timeout),
                                                         .indices = indices,
                                                         .values = values,
                                                         .mine = mine,
                                                         .shapes = std::vector<Shape>(static_cast<std::size_t>(size_)),
                                                         .all_indices = {},
                                                         .all_values = {}});
  Call call{c10d::OpType::_ALLREDUCE_SPARSE, title, {tensor}, {indices, values}, {}};
  call.finish = [tensor, summing] {
    const at::AutoDispatchBelowADInplaceOrView plain_copies;
    tensor.copy_(sum(summing->shapes, summing->all_indices, summing->all_values, tensor.sizes()));
  };
  auto work = pending(std::move(call), collectives_++);
  work->add(
      [&] {
        return communicator->start(
            {.collective = Collective::all_gather,
             .input = summing->mine.word,
             .output = TypedSpan(summing->shapes.data(), summing->shapes.size() * Shape::words, DType::i64),
             .timeout = summing->timeout,
             .label = {.element = label_of(values).element},
             .part_of = Composite::sparse_all_reduce});
      },
      [summing, group = std::weak_ptr(communicator)](PendingWork& self, const Work& gathered) {
        const auto living = group.lock();
        if (!living) throw Error(ErrorKind::aborted, "the process group was destroyed before this sum was done");
        const at::AutoDispatchBelowADInplaceOrView plain_copies;
        summing->check(*living, gathered.sequence());
        summing->make_room();
        summing->exchange(*living, self);
      });
  work->seal();
  return work;
}

}  // namespace ranvier::pytorch
