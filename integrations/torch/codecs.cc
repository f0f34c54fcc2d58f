// Codecs for Python: a class that torch carries, as register.cc's operators are carried.
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>

#include "integrations/torch/backend.h"
#include "integrations/torch/errors.h"
#include "integrations/torch/tensors.h"
#include "ranvier/codec.h"
#include "ranvier/exchange.h"

namespace ranvier::pytorch {
namespace {

std::span<float> floats_of(const at::Tensor& tensor, const char* what) {
  require_dense_cpu(tensor, what);
  TORCH_CHECK_VALUE(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(), what,
                    ": the tensor has to be contiguous and of float32");
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

ConstBytes bytes_of(const at::Tensor& tensor, const char* what) {
  require_dense_cpu(tensor, what);
  TORCH_CHECK_VALUE(tensor.scalar_type() == at::kByte && tensor.is_contiguous(), what,
                    ": the tensor has to be contiguous and of uint8");
  return {static_cast<const std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

std::vector<TensorPiece> pieces_of(const std::vector<std::int64_t>& sizes) {
  std::vector<TensorPiece> pieces;
  for (const std::int64_t size : sizes)
    pieces.push_back({.size = static_cast<std::size_t>(size), .of = static_cast<std::size_t>(size)});
  return pieces;
}

CodecState state_of(const at::Tensor& residual, const at::Tensor& velocity, std::size_t count, const char* what) {
  const CodecState state{.residual = floats_of(residual, what), .velocity = floats_of(velocity, what)};
  TORCH_CHECK_VALUE((state.residual.empty() || state.residual.size() == count) &&
                        (state.velocity.empty() || state.velocity.size() == count),
                    what, ": residual and velocity have to be as long as the values, or empty");
  return state;
}

struct CodecHandle : torch::CustomClassHolder {
  explicit CodecHandle(std::shared_ptr<const Codec> made) : codec(std::move(made)) {}
  explicit CodecHandle(const std::string& spec) : CodecHandle(translating_errors([&] { return make_codec(spec); })) {}

  // Empty where the values have no code. `residual` and `velocity` are changed; empty tensors do without them. The
  // values begin at `begin` of a bucket whose tensors have `sizes`, for a codec that chooses by tensor; else of none.
  at::Tensor encode(const at::Tensor& values, const at::Tensor& residual, const at::Tensor& velocity, std::int64_t seed,
                    std::int64_t step, const std::vector<std::int64_t>& sizes, std::int64_t begin) const {
    const auto input = floats_of(values, "encode");
    const CodecState state = state_of(residual, velocity, input.size(), "encode");
    const auto pieces = cut(pieces_of(sizes), static_cast<std::size_t>(begin), input.size());
    at::Tensor code = at::empty({static_cast<std::int64_t>(codec->max_bytes(input.size()))}, at::kByte);
    const Bytes memory(static_cast<std::byte*>(code.data_ptr()), static_cast<std::size_t>(code.numel()));
    const std::size_t bytes = translating_errors([&] {
      return codec->encode(
          input, state, memory,
          {.seed = static_cast<std::uint64_t>(seed), .step = static_cast<std::uint64_t>(step), .pieces = pieces});
    });
    return code.narrow(0, 0, static_cast<std::int64_t>(bytes));
  }

  void decode(const at::Tensor& code, const at::Tensor& out, bool add) const {
    const auto values = floats_of(out, "decode");
    translating_errors([&] { codec->decode(bytes_of(code, "decode"), values, add ? Combine::add : Combine::replace); });
  }

  const std::shared_ptr<const Codec> codec;
};

using CodecPtr = c10::intrusive_ptr<CodecHandle>;

// Averages over a ranvier backend, whose engine moves the codes.
struct CodedAveragesHandle : torch::CustomClassHolder {
  explicit CodedAveragesHandle(const std::string& spec)
      : averages(translating_errors([&] { return std::shared_ptr<const Codec>(make_codec(spec)); })) {}

  // In place, over `group`'s backend for the CPU: whether a part went plain, and the bytes sent. The rest as encode().
  std::tuple<bool, std::int64_t> average(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const at::Tensor& values,
                                         const at::Tensor& residual, const at::Tensor& velocity, std::int64_t number,
                                         std::int64_t step, const std::vector<std::int64_t>& sizes) {
    const auto input = floats_of(values, "average");
    const CodecState state = state_of(residual, velocity, input.size(), "average");
    const auto comm = communicator_of(*group->getBackend(c10::DeviceType::CPU));
    const auto pieces = pieces_of(sizes);
    const auto outcome = translating_errors([&] {
      return averages.average(*comm, input, state, static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(step),
                              pieces);
    });
    return {outcome.went_plain, static_cast<std::int64_t>(outcome.bytes_sent)};
  }

  CodedAverages averages;
};

}  // namespace
}  // namespace ranvier::pytorch

TORCH_LIBRARY_FRAGMENT(ranvier, library) {
  using ranvier::pytorch::CodecHandle;
  using ranvier::pytorch::CodecPtr;
  library.class_<CodecHandle>("Codec")
      .def(torch::init<std::string>())
      .def("encode", &CodecHandle::encode)
      .def("decode", &CodecHandle::decode)
      .def("max_bytes",
           [](const CodecPtr& self, std::int64_t count) {
             return static_cast<std::int64_t>(self->codec->max_bytes(static_cast<std::size_t>(count)));
           })
      .def("state_parts", [](const CodecPtr& self) { return static_cast<std::int64_t>(self->codec->state_parts()); })
      .def("momentum", [](const CodecPtr& self) { return self->codec->momentum(); })
      .def("chooses_by_tensor", [](const CodecPtr& self) { return self->codec->chooses_by_tensor(); })
      .def("clipping_norm", [](const CodecPtr& self) { return self->codec->clipping_norm(); })
      .def("of_differences", [](const CodecPtr& self) { return self->codec->of_differences(); })
      .def("by_all_gather", [](const CodecPtr& self) { return self->codec->way() == ranvier::Way::all_gather; })
      .def("sum_scale",
           [](const CodecPtr& self, std::int64_t ranks) {
             return static_cast<double>(self->codec->sum_scale(static_cast<ranvier::Rank>(ranks)));
           })
      .def("for_sums", [](const CodecPtr& self) {
        auto sums = self->codec->for_sums();
        return sums ? c10::make_intrusive<CodecHandle>(std::move(sums)) : self;
      });
  library.class_<ranvier::pytorch::CodedAveragesHandle>("CodedAverages")
      .def(torch::init<std::string>())
      .def("slice_size",
           [](const c10::intrusive_ptr<ranvier::pytorch::CodedAveragesHandle>& self, std::int64_t count) {
             return static_cast<std::int64_t>(self->averages.slice_size(static_cast<std::size_t>(count)));
           })
      .def("average", &ranvier::pytorch::CodedAveragesHandle::average);
}
