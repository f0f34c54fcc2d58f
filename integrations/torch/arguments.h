// What c10d's callers may pass: checks that say what is wrong with a tensor or a list of them, naming the operation
// (`title`), as ValueError or TypeError in Python.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ranvier/types.h"

namespace ranvier::pytorch {

using Tensors = std::vector<at::Tensor>;
using Splits = std::vector<std::size_t>;

// How many elements each tensor of a list is; nothing where all are alike, which every algorithm can do.
Splits splits_of(const Tensors&);
// The same for rows of one tensor, as all_to_all_single is given them.
Splits splits_of(const at::Tensor&, const std::vector<std::int64_t>& rows, Rank world, const char* title);
// Those of a tensor that divides among all ranks alike.
Splits even_splits(const at::Tensor&, Rank world);

// What ranks compare of an exchange. Each may cut its tensors as it likes: a shape there is only where all that this
// rank sends and receives have the same, so that two ranks of which that is true must have the same one.
CallLabel label_of_exchange(const Tensors& inputs, const Tensors& outputs);
// The same of rows, where they are given.
CallLabel label_of_exchange(const at::Tensor& input, const at::Tensor& output, bool by_rows, Rank world);

// The one list in `lists`, with a dense tensor for each rank.
const Tensors& one_list(const std::vector<Tensors>& lists, Rank world, const char* title);
void require_one_each(const Tensors&, Rank world, const char* title);
// One or several dense tensors of one type and one shape.
void require_alike(const Tensors&, const char* title);
void require_pairs(const Tensors& outputs, const Tensors& inputs, const char* title);
// `whole` has world times the elements of `part`.
void require_multiple(const at::Tensor& whole, const at::Tensor& part, Rank world, const char* title);
void same_type(const at::Tensor& output, const at::Tensor& input, const char* title);
void same_size(const at::Tensor&, const at::Tensor&, const char* title);

}  // namespace ranvier::pytorch
