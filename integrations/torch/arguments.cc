#include "integrations/torch/arguments.h"

#include <algorithm>

#include "integrations/torch/tensors.h"

namespace ranvier::pytorch {

Splits splits_of(const Tensors& tensors) {
  Splits splits;
  for (const at::Tensor& tensor : tensors) splits.push_back(elements(tensor).count);
  if (std::ranges::all_of(splits, [&](std::size_t split) { return split == splits.front(); })) splits.clear();
  return splits;
}

Splits splits_of(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, Rank world, const char* title) {
  const std::int64_t height = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (rows.empty()) {
    TORCH_CHECK_VALUE(height % world == 0, title, ": ", height, " rows do not divide among ", world,
                      " ranks: pass split sizes");
    return {};
  }
  std::int64_t total = 0;
  const std::size_t row = height == 0 ? 0 : elements(tensor).count / static_cast<std::size_t>(height);
  Splits splits;
  for (const std::int64_t count : rows) {
    TORCH_CHECK_VALUE(count >= 0, title, ": a split size is ", count);
    splits.push_back(static_cast<std::size_t>(count) * row);
    total += count;
  }
  TORCH_CHECK_VALUE(std::ssize(rows) == world && total == height, title, ": ", rows.size(), " split sizes of ", total,
                    " rows in all were given for ", world, " ranks and ", height, " rows");
  return splits;
}

Splits even_splits(const at::Tensor& tensor, Rank world) {
  return Splits(static_cast<std::size_t>(world), elements(tensor).count / static_cast<std::size_t>(world));
}

CallLabel label_of_exchange(const Tensors& inputs, const Tensors& outputs) {
  const auto is_alike = [&](const at::Tensor& part) { return part.sizes() == inputs.front().sizes(); };
  CallLabel label = label_of(inputs.front());
  // Nothing has any shape: who sends no rows may have forgotten their width.
  const bool one_shape =
      inputs.front().numel() > 0 && std::ranges::all_of(inputs, is_alike) && std::ranges::all_of(outputs, is_alike);
  if (!one_shape) label.shape = 0;
  return label;
}

CallLabel label_of_exchange(const at::Tensor& input, const at::Tensor& output, bool by_rows, Rank world) {
  if (by_rows || input.sizes() != output.sizes() || input.numel() == 0) return {.element = label_of(input).element};
  return label_of_part(input, world);
}

const Tensors& one_list(const std::vector<Tensors>& lists, Rank world, const char* title) {
  TORCH_CHECK_VALUE(lists.size() == 1, title, " takes one list of tensors, and this call has ", lists.size());
  require_one_each(lists.front(), world, title);
  return lists.front();
}

void require_one_each(const Tensors& tensors, Rank world, const char* title) {
  TORCH_CHECK_VALUE(std::ssize(tensors) == world, title, ": the list has ", tensors.size(), " tensors for ", world,
                    " ranks");
  for (const at::Tensor& tensor : tensors) require_dense(tensor, title);
}

void require_alike(const Tensors& tensors, const char* title) {
  TORCH_CHECK_VALUE(!tensors.empty(), title, " takes a tensor, and this call has none");
  const at::Tensor& first = tensors.front();
  for (const at::Tensor& tensor : tensors) {
    require_dense(tensor, title);
    TORCH_CHECK_VALUE(tensor.scalar_type() == first.scalar_type() && tensor.sizes() == first.sizes(), title,
                      ": the tensors that a rank gives to one call must be alike, and these are ", first.scalar_type(),
                      first.sizes(), " and ", tensor.scalar_type(), tensor.sizes());
  }
}

void require_pairs(const Tensors& outputs, const Tensors& inputs, const char* title) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), title, ": ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs");
  for (const at::Tensor& tensor : outputs) require_dense(tensor, title);
  for (const at::Tensor& tensor : inputs) require_dense(tensor, title);
}

void require_multiple(const at::Tensor& whole, const at::Tensor& part, Rank world, const char* title) {
  same_type(whole, part, title);
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * world, title, ": the larger tensor has ", whole.numel(),
                    " elements, and ", world, " ranks times ", part.numel(), " elements are ", part.numel() * world);
}

void same_type(const at::Tensor& a, const at::Tensor& b, const char* title) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), title, ": the output is ", a.scalar_type(), " and the input ",
                   b.scalar_type(), "; they must have one type");
}

void same_size(const at::Tensor& a, const at::Tensor& b, const char* title) {
  TORCH_CHECK_VALUE(a.numel() == b.numel(), title, ": the tensors of one call must be of one size, and these have ",
                    a.numel(), " and ", b.numel(), " elements");
}

}  // namespace ranvier::pytorch
