#include "integrations/torch/tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <optional>

#include "integrations/torch/staging.h"

namespace ranvier::pytorch {
namespace {

// What a torch type is to the engine: `count` elements of `type`.
struct Element {
  DType type;
  std::size_t count;
};

std::optional<Element> known(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Element{DType::f32, 1};
    case at::kDouble:
      return Element{DType::f64, 1};
    case at::kHalf:
      return Element{DType::f16, 1};
    case at::kBFloat16:
      return Element{DType::bf16, 1};
    case at::kChar:
      return Element{DType::i8, 1};
    case at::kShort:
      return Element{DType::i16, 1};
    case at::kInt:
      return Element{DType::i32, 1};
    case at::kLong:
      return Element{DType::i64, 1};
    case at::kByte:
      return Element{DType::u8, 1};
    case at::kBool:
      return Element{DType::boolean, 1};
    case at::kComplexHalf:
      return Element{DType::f16, 2};
    case at::kComplexFloat:
      return Element{DType::f32, 2};
    case at::kComplexDouble:
      return Element{DType::f64, 2};
    default:
      return std::nullopt;
  }
}

Element element_of(const at::Tensor& tensor) {
  return known(tensor.scalar_type()).value_or(Element{DType::u8, static_cast<std::size_t>(tensor.element_size())});
}

TypedSpan span_of(const at::Tensor& tensor, const Element& element) {
  return {tensor.numel() == 0 ? nullptr : tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()) * element.count,
          element.type};
}

bool is_packed(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

constexpr std::uint64_t hash_factor = 0x9E3779B97F4A7C15u;

std::uint64_t shape_hash(std::uint64_t hash, at::IntArrayRef sizes) {
  for (const std::int64_t size : sizes)
    if (size != 1) hash = (hash + static_cast<std::uint64_t>(size)) * hash_factor;
  return hash;
}

// Of a label, in which 0 stands for none.
std::uint16_t digest(std::uint64_t hash) { return std::max<std::uint16_t>(1, static_cast<std::uint16_t>(hash >> 48)); }
std::uint8_t number_of(at::ScalarType type) { return static_cast<std::uint8_t>(static_cast<int>(type) + 1); }

// Torch would refuse the copy, when all has been sent and the other ranks are content.
void require_own_memory(const at::Tensor& output, const char* operation) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(output) != at::MemOverlap::Yes, operation,
                    ": elements of this output share memory, as expand() lets them: pass its clone()");
}

// Memory that the engine can use.
at::Tensor room_for(const at::Tensor& like, at::IntArrayRef sizes) {
  return like.device().is_cpu() ? at::empty(sizes, like.options()) : host_room(like, sizes);
}

// Copies are no part of the caller's autograd graph, and run on threads that know nothing of its modes.
using PlainCopies = at::AutoDispatchBelowADInplaceOrView;

}  // namespace

void require_dense(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, operation, ": this tensor is ", tensor.layout(),
                    ", and of those that are not dense only all_reduce takes any, which are sparse COO: pass "
                    "tensor.to_dense()");
  TORCH_CHECK_VALUE(!tensor.is_meta(), operation,
                    ": this tensor is on the device meta, which keeps no elements: pass "
                    "torch.empty_like(tensor, device=\"cpu\")");
}

void require_dense_cpu(const at::Tensor& tensor, const char* operation) {
  require_dense(tensor, operation);
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), operation, ": this tensor is on ", tensor.device(),
                    ", and codes are made on the CPU: pass tensor.cpu()");
}

at::Tensor& single(std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, operation, " takes one tensor per rank, and this call has ", tensors.size());
  require_dense(tensors.front(), operation);
  return tensors.front();
}

at::Tensor packed(const at::Tensor& tensor) {
  if (is_packed(tensor)) return tensor;
  const PlainCopies guard;
  if (!tensor.device().is_cpu()) return copy_on_host(tensor);
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor packed_room(const at::Tensor& tensor) {
  if (is_packed(tensor)) return tensor;
  const PlainCopies guard;
  return room_for(tensor, tensor.sizes());
}

at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  const PlainCopies guard;
  at::Tensor all = joined_room(tensors, tensors.front());
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    all.narrow(0, offset, tensor.numel()).copy_(tensor.reshape({-1}));
    offset += tensor.numel();
  }
  return all;
}

at::Tensor joined_room(const std::vector<at::Tensor>& tensors, const at::Tensor& like) {
  const PlainCopies guard;
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(),
                     "the tensors of one operation must have one type, and "
                     "these are ",
                     tensor.scalar_type(), " and ", like.scalar_type());
    count += tensor.numel();
  }
  return room_for(like, {count});
}

TypedSpan elements(const at::Tensor& packed) { return span_of(packed, element_of(packed)); }

TypedSpan reducible(const at::Tensor& packed, ReduceOp op) {
  const auto element = known(packed.scalar_type());
  const bool pairs_may = op == ReduceOp::sum || op == ReduceOp::average;
  TORCH_CHECK_TYPE(element && is_defined(op, element->type) && (element->count == 1 || pairs_may), "the reduction '",
                   std::string(name_of(op)), "' is not defined for tensors of type ", packed.scalar_type());
  return span_of(packed, *element);
}

CallLabel label_of(const at::Tensor& tensor) {
  return {.element = number_of(tensor.scalar_type()), .shape = digest(shape_hash(0, tensor.sizes()))};
}

CallLabel label_of_part(const at::Tensor& whole, Rank parts) {
  std::vector<std::int64_t> sizes = whole.sizes().vec();
  if (!sizes.empty()) sizes.front() /= parts;
  return {.element = number_of(whole.scalar_type()), .shape = digest(shape_hash(0, sizes))};
}

CallLabel label_of(const std::vector<at::Tensor>& parts) {
  std::uint64_t hash = 0;
  for (const at::Tensor& part : parts) hash = shape_hash(hash + hash_factor, part.sizes());  // where one ends counts
  return {.element = number_of(parts.front().scalar_type()), .shape = digest(hash)};
}

std::string element_name(std::uint8_t element) {
  if (element == 0 || element > static_cast<int>(at::ScalarType::NumOptions)) return "an unknown type";
  return std::string(c10::getDtypeNames(static_cast<at::ScalarType>(element - 1)).first);
}

ReduceOp translate(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::average;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    case c10d::ReduceOp::BAND:
      return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR:
      return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::bit_xor;
    case c10d::ReduceOp::PREMUL_SUM:
      TORCH_CHECK_VALUE(false,
                        "ranvier has no PREMUL_SUM: multiply the tensor first, then reduce it with SUM (of "
                        "FSDP, call set_force_sum_reduction_for_comms(True) on every module that it shards)");
    case c10d::ReduceOp::UNUSED:
      break;
  }
  TORCH_CHECK_VALUE(false, "unknown reduction number ", static_cast<int>(op.op_));
}

void add_write_back(std::vector<WriteBack>& list, const at::Tensor& to, const at::Tensor& from, const char* operation) {
  if (to.is_same(from)) return;
  require_own_memory(to, operation);
  list.push_back({to, from});
}

void add_write_backs(std::vector<WriteBack>& list, const std::vector<at::Tensor>& to, const at::Tensor& from,
                     const char* operation) {
  const PlainCopies guard;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : to) {
    require_own_memory(tensor, operation);
    list.push_back({tensor, from.narrow(0, offset, tensor.numel()).view(tensor.sizes())});
    offset += tensor.numel();
  }
}

void write_back(const std::vector<WriteBack>& list) {
  const PlainCopies guard;
  for (const WriteBack& each : list) each.to.copy_(each.from, /*non_blocking=*/true);
}

}  // namespace ranvier::pytorch
