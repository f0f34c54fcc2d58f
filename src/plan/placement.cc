// Which dimensions the groups of each kind of parallelism span.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ranvier/error.h"
#include "ranvier/workload.h"

namespace ranvier {
namespace {

// What is left of each dimension, from the innermost on.
class Dimensions {
 public:
  explicit Dimensions(const NetworkShape& shape) : shape_(shape) {
    for (const auto& dimension : shape.dimensions) left_.push_back(dimension.size);
  }

  GroupSizes take(std::int64_t degree, std::string_view what) {
    GroupSizes group(left_.size(), 1);
    std::int64_t wanted = degree;
    for (std::size_t i = 0; i < left_.size() && wanted > 1; ++i) {
      if (left_[i] == 1) continue;
      const auto part = static_cast<int>(std::gcd<std::int64_t>(wanted, left_[i]));
      // A group may end inside a dimension, but not leave a hole in one and go on in the next.
      if (part != left_[i] && part != wanted)
        throw Error(ErrorKind::usage,
                    fmt::format("{} parallelism of {} does not fit dimension {} of {}: it is to span a divisor or a "
                                "multiple of the {} NPUs left there",
                                what, degree, i, to_string(shape_), left_[i]));
      group[i] = part;
      left_[i] /= part;
      wanted /= part;
    }
    if (wanted > 1)
      throw Error(ErrorKind::usage,
                  fmt::format("{} parallelism of {} is more than what {} has left", what, degree, to_string(shape_)));
    return group;
  }

 private:
  const NetworkShape& shape_;
  std::vector<int> left_;
};

}  // namespace

double bubble_ns(const Workload& workload) {
  double computing = 0;
  for (const Layer& layer : workload.layers)
    computing += layer.forward.compute_ns + layer.input_gradient.compute_ns + layer.weight_gradient.compute_ns;
  return workload.fills * computing;
}

std::optional<GroupSizes> group_sizes(std::span<const Rank> npus, const NetworkShape& shape) {
  const std::set<Rank> members(npus.begin(), npus.end());
  GroupSizes sizes;
  std::size_t all = 1;
  std::int64_t stride = 1;
  for (const auto& dimension : shape.dimensions) {
    std::set<std::int64_t> places;
    for (const Rank npu : members) places.insert(npu / stride % dimension.size);
    sizes.push_back(static_cast<int>(places.size()));
    all *= places.size();
    stride *= dimension.size;
  }
  // Different members differ in some place, so that so many are all that there can be.
  if (members.empty() || all != members.size()) return std::nullopt;
  return sizes;
}

Placement place(const Degrees& degrees, const NetworkShape& shape) {
  const std::int64_t npus = shape.npus();
  const std::int64_t model = std::int64_t{degrees.tensor} * degrees.pipeline;
  if (npus % model != 0)
    throw Error(ErrorKind::usage,
                fmt::format("tensor x pipeline parallelism of {} x {} does not divide the {} NPUs of {}; name other "
                            "degrees behind the workload, such as tp=2,pp=1",
                            degrees.tensor, degrees.pipeline, npus, to_string(shape)));
  const std::int64_t data = degrees.data > 0 ? degrees.data : npus / model;
  if (model * data != npus)
    throw Error(ErrorKind::usage,
                fmt::format("tensor x data x pipeline parallelism is {} x {} x {} = {}, but {} has {} NPUs",
                            degrees.tensor, data, degrees.pipeline, model * data, to_string(shape), npus));
  if (data % degrees.expert != 0)
    throw Error(ErrorKind::usage,
                fmt::format("expert parallelism of {} does not divide data parallelism of {}", degrees.expert, data));
  Dimensions dimensions(shape);
  Placement placement;
  placement.of(Role::tensor) = dimensions.take(degrees.tensor, "tensor");
  placement.of(Role::expert) = dimensions.take(degrees.expert, "expert");
  placement.of(Role::expert_data) = dimensions.take(data / degrees.expert, "data");
  placement.of(Role::data) = placement.of(Role::expert_data);
  for (std::size_t i = 0; i < placement.of(Role::data).size(); ++i)
    placement.of(Role::data)[i] *= placement.of(Role::expert)[i];
  // Files that give groups by pass and no communicator mean all replicas.
  for (const Role role : {Role::forward, Role::input_gradient, Role::weight_gradient})
    placement.of(role) = placement.of(Role::data);
  placement.of(Role::pipeline) = dimensions.take(degrees.pipeline, "pipeline");
  return placement;
}

namespace {

// `beside`: how much of each dimension other groups take, behind which these begin.
Axes axes_of(const GroupSizes& group, const GroupSizes& beside, const NetworkShape& shape) {
  Axes axes;
  Rank stride = 1;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const auto& dimension = shape.dimensions[i];
    const int inner = std::int64_t{group[i]} * beside[i] <= dimension.size ? beside[i] : 1;
    if (dimension.size % (std::int64_t{inner} * group[i]) != 0)
      throw Error(
          ErrorKind::usage,
          fmt::format("groups of {} do not divide dimension {} of {}, and what is left over has no group; write "
                      "a divisor of {}",
                      group[i], i, to_string(shape), dimension.size));
    const Grouping axis{.size = group[i], .stride = stride * inner};
    stride *= dimension.size;
    if (axis.size == 1) continue;
    if (!axes.empty() && axes.back().stride * axes.back().size == axis.stride)
      axes.back().size *= axis.size;
    else
      axes.push_back(axis);
  }
  return axes;
}

}  // namespace

Workload with_groups(Workload workload, const Placement& placement, const NetworkShape& shape) {
  const GroupSizes alone(shape.dimensions.size(), 1);
  GroupSizes model = placement.of(Role::forward);
  for (std::size_t i = 0; i < model.size(); ++i) model[i] = std::max(model[i], placement.of(Role::input_gradient)[i]);
  for (const Role role : {Role::forward, Role::input_gradient, Role::weight_gradient})
    workload.groups[role] = axes_of(placement.of(role), role == Role::weight_gradient ? model : alone, shape);
  return workload;
}

}  // namespace ranvier
