// Tensors as runs of elements that the engine can move and reduce.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::pytorch {

// Throws ValueError naming `operation` unless `tensor` is dense and has elements on some device.
void require_dense(const at::Tensor& tensor, const char* operation);
// Likewise; of what cannot be staged.
void require_dense_cpu(const at::Tensor& tensor, const char* operation);
// Of `size` elements, or any number where that is -1. Throws ValueError naming `what` for another type, size or device,
// and for a tensor with gaps.
template <class T>
std::span<T> span_of(const at::Tensor& tensor, std::int64_t size, const char* what) {
  require_dense_cpu(tensor, what);
  TORCH_CHECK_VALUE(tensor.scalar_type() == c10::CppTypeToScalarType<T>::value && tensor.is_contiguous() &&
                        (size < 0 || tensor.numel() == size),
                    what, ": the tensor has another type or size than it should, or gaps");
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

// The one tensor of a list, as c10d passes it.
at::Tensor& single(std::vector<at::Tensor>& tensors, const char* operation);

// The tensor itself where its elements stand on the CPU in order and without gaps, else a copy that does.
at::Tensor packed(const at::Tensor& tensor);
// Likewise, but a new tensor has the same size only: for outputs that are overwritten anyway.
at::Tensor packed_room(const at::Tensor& tensor);

// One tensor of all elements of `tensors`, in order, on the CPU.
at::Tensor joined(const std::vector<at::Tensor>& tensors);
at::Tensor joined_room(const std::vector<at::Tensor>& tensors, const at::Tensor& like);

// A packed tensor's memory for an operation that only moves it: every type goes, those that ranvier does not know as
// bytes, complex numbers as pairs.
TypedSpan elements(const at::Tensor& packed);
// For an operation that reduces. Throws TypeError for types that cannot be, or not with `op`.
TypedSpan reducible(const at::Tensor& packed, ReduceOp op);

// What the ranks compare of a tensor beyond that: its type, and its shape but for dimensions of one, which change
// nothing about the order of its elements.
CallLabel label_of(const at::Tensor& tensor);
// The same of each of so many parts into which its rows are divided evenly.
CallLabel label_of_part(const at::Tensor& whole, Rank parts);
// The same of parts that are joined for the way.
CallLabel label_of(const std::vector<at::Tensor>& parts);
// "complex64", of a label.
std::string element_name(std::uint8_t element);

// Throws ValueError for those that ranvier has not.
ReduceOp translate(const c10d::ReduceOp& op);

// A result that was received into memory of its own, and the tensor that the caller wants it in.
struct WriteBack {
  at::Tensor to;
  at::Tensor from;
};
// Nothing, if `from` is `to` itself. Throws ValueError naming `operation` where elements of `to` share memory.
void add_write_back(std::vector<WriteBack>& list, const at::Tensor& to, const at::Tensor& from, const char* operation);
// Likewise; `from` holds the elements of all tensors of `to`, in order.
void add_write_backs(std::vector<WriteBack>& list, const std::vector<at::Tensor>& to, const at::Tensor& from,
                     const char* operation);
// To a device the copies may still be under way, on its current stream, when this returns.
void write_back(const std::vector<WriteBack>& list);

}  // namespace ranvier::pytorch
