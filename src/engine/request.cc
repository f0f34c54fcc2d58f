#include "engine/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

// One request under examination: every complaint begins with the name of the collective.
class Examiner {
 public:
  // `names` outlive this.
  Examiner(const Request& request, Rank rank, Rank world, const RankNames& names)
      : request_(request), rank_(rank), world_(world), names_(names) {}

  Shape shape() {
    const auto [collective, input, output, op, root, input_splits, output_splits, algorithm, timeout, priority, label,
                part_of, tolerates_loss, may_differ, lost] = request_;
    demand_memory(input, "input");
    demand_memory(output, "output");
    if (has_root(collective)) demand(root >= 0 && root < world_, "root {} is not in a world of {} ranks", root, world_);
    const bool is_root = rank_ == root;
    Shape shape;
    shape.collective = collective;
    shape.root = has_root(collective) ? root : 0;
    shape.element_bytes = static_cast<std::uint32_t>(size_of(dtype_of(request_)));
    switch (collective) {
      case Collective::barrier:
        shape.count = 1;
        shape.in_place = true;
        shape.element_bytes = 1;
        return shape;
      case Collective::all_reduce:
        demand_alike();
        shape.count = output.count;
        break;
      case Collective::reduce:
        if (is_root) demand_alike();
        shape.count = input.count;
        break;
      case Collective::broadcast:
        if (is_root) demand_alike();
        shape.count = output.count;
        break;
      case Collective::all_gather:
      case Collective::gather:
        gathered(shape, input.count, output.count, output_splits, "input", "output", true);
        break;
      case Collective::reduce_scatter:
      case Collective::scatter:
        gathered(shape, output.count, input.count, input_splits, "output", "input", false);
        break;
      case Collective::all_to_all:
        exchanged(shape, static_cast<std::size_t>(world_), "ranks");
        demand_own_part(shape);
        break;
      case Collective::neighbor_exchange:
        break;  // see share_among_directions
      default:
        demand(false, "is no collective; see start_send and start_recv");
    }
    shape.in_place = in_place(shape);
    return shape;
  }

  // A part for each of so many `takers` ("ranks") on both sides.
  void exchanged(Shape& shape, std::size_t parts, std::string_view takers) const {
    const auto side = [&](std::span<const std::size_t> splits, std::size_t count, std::string_view name) {
      if (!splits.empty()) {
        demand_splits(splits, count, name, parts, takers);
        return std::vector(splits.begin(), splits.end());
      }
      demand(count % parts == 0, "{} has {} elements, which {} {} cannot share evenly; pass {}_splits", name, count,
             parts, takers, name);
      return std::vector(parts, count / parts);
    };
    demand_one_type();
    auto inputs = side(request_.input_splits, request_.input.count, "input");
    auto outputs = side(request_.output_splits, request_.output.count, "output");
    if (request_.input_splits.empty() && request_.output_splits.empty() &&
        request_.input.count == request_.output.count) {
      shape.count = request_.input.count / parts;
      return;
    }
    shape.input_splits = std::move(inputs);
    shape.output_splits = std::move(outputs);
  }

  // Along a periodic dimension of one a rank is its own neighbour.
  void demand_own_parts(const Shape& shape, std::size_t dimension) const {
    for (const std::size_t sent : {2 * dimension, 2 * dimension + 1}) {
      const std::size_t received = sent ^ 1;
      demand(shape.input_splits[sent] == shape.output_splits[received],
             "part {} of the input has {} elements and part {} of the output {}; they are one part, since dimension {} "
             "is periodic and has one rank",
             sent, shape.input_splits[sent], received, shape.output_splits[received], dimension);
    }
  }

 private:
  template <class... Arguments>
  void demand(bool right, fmt::string_view complaint, const Arguments&... arguments) const {
    if (!right)
      throw Error(ErrorKind::usage, fmt::format("{} on {}: {}", name_of(request_.collective), names_(rank_),
                                                fmt::vformat(complaint, fmt::make_format_args(arguments...))));
  }

  // Of any address space; what is counted of them adds up below.
  static constexpr std::size_t most_elements = std::size_t{1} << 47;

  template <class Span>
  void demand_memory(const Span& span, std::string_view name) const {
    demand(span.data != nullptr || span.count == 0, "{} has {} elements and no memory", name, span.count);
    demand(span.count <= most_elements, "{} has {} elements, which no memory holds", name, span.count);
  }

  // What a rank sends to itself is what it receives from itself.
  void demand_own_part(const Shape& shape) const {
    if (shape.input_splits.empty()) return;
    const auto own = static_cast<std::size_t>(rank_);
    demand(
        shape.input_splits[own] == shape.output_splits[own],
        "part {} of the input has {} elements and part {} of the output {}; they are one part, which this rank keeps",
        own, shape.input_splits[own], own, shape.output_splits[own]);
  }

  void demand_one_type() const {
    demand(request_.input.dtype == request_.output.dtype, "input is {} and output is {}; both must be the same type",
           name_of(request_.input.dtype), name_of(request_.output.dtype));
  }

  void demand_alike() const {
    demand(request_.input.count == request_.output.count && request_.input.dtype == request_.output.dtype,
           "input is {} x {} and output is {} x {}; both must be the same", name_of(request_.input.dtype),
           request_.input.count, name_of(request_.output.dtype), request_.output.count);
  }

  // Sums that wrap around could be any number, also the right one.
  std::size_t sum_of(std::span<const std::size_t> splits, std::string_view whole) const {
    std::size_t sum = 0;
    for (std::size_t part = 0; part < splits.size(); ++part) {
      demand(splits[part] <= most_elements - sum,
             "part {} of {}_splits has {} elements and those before it {}, which no memory holds", part, whole,
             splits[part], sum);
      sum += splits[part];
    }
    return sum;
  }

  void demand_splits(std::span<const std::size_t> splits, std::size_t count, std::string_view whole, std::size_t parts,
                     std::string_view takers) const {
    demand(splits.size() == parts, "{}_splits has {} entries, and {} {} need {}", whole, splits.size(), parts, takers,
           parts);
    const std::size_t sum = sum_of(splits, whole);
    demand(sum == count, "{}_splits add up to {}, and {} has {} elements", whole, sum, whole, count);
  }

  // One rank's part on one side, all ranks' parts on the other, which only the root has where there is one.
  void gathered(Shape& shape, std::size_t part, std::size_t whole, std::span<const std::size_t> splits,
                std::string_view part_name, std::string_view whole_name, bool output_is_whole) const {
    const bool has_whole = !has_root(request_.collective) || rank_ == request_.root;
    if (has_whole) demand_one_type();
    const auto world = static_cast<std::size_t>(world_);
    shape.count = part;
    if (splits.empty()) {
      demand(!has_whole || whole == part * world, "{} has {} elements, so {} must have {} x {} = {}, and has {}",
             part_name, part, whole_name, world, part, part * world, whole);
      return;
    }
    demand_splits(splits, has_whole ? whole : sum_of(splits, whole_name), whole_name, world, "ranks");
    const std::size_t mine = splits[static_cast<std::size_t>(rank_)];
    demand(mine == part, "{}_splits give {} {} elements, and {} has {}", whole_name, names_(rank_), mine, part_name,
           part);
    shape.count = 0;
    (output_is_whole ? shape.input_splits : shape.output_splits) = {part};
    auto& all = !has_whole ? shape.parts : output_is_whole ? shape.output_splits : shape.input_splits;
    all.assign(splits.begin(), splits.end());
  }

  // Whether input and output are one memory as this collective allows it; any other overlap is refused.
  bool in_place(const Shape& shape) const {
    const auto& [collective, input, output, op, root, input_splits, output_splits, algorithm, timeout, priority, label,
                 part_of, tolerates_loss, may_differ, lost] = request_;
    if (input.bytes() == 0 || output.bytes() == 0) return false;
    if ((collective == Collective::reduce || collective == Collective::gather || collective == Collective::scatter ||
         collective == Collective::broadcast) &&
        rank_ != root)
      return false;
    if (!overlap(input, output)) return false;
    const auto from = reinterpret_cast<std::uintptr_t>(input.data);
    const auto to = reinterpret_cast<std::uintptr_t>(output.data);
    const auto offset = [&](const std::vector<std::size_t>& splits) {
      const std::size_t elements = splits.empty()
                                       ? shape.count * static_cast<std::size_t>(rank_)
                                       : std::accumulate(splits.begin(), splits.begin() + rank_, std::size_t{0});
      return elements * shape.element_bytes;
    };
    bool fits = from == to;
    if (collective == Collective::all_gather || collective == Collective::gather)
      fits = from == to + offset(shape.output_splits);
    if (collective == Collective::reduce_scatter || collective == Collective::scatter)
      fits = to == from + offset(shape.input_splits);
    demand(fits && collective != Collective::all_to_all && collective != Collective::neighbor_exchange,
           "input and output overlap in a way that it cannot work with; use separate memory");
    return true;
  }

  const Request& request_;
  Rank rank_;
  Rank world_;
  const RankNames& names_;
};

}  // namespace

Shape shape_of(const Request& request, Rank rank, Rank world, const RankNames& names) {
  return Examiner(request, rank, world, names).shape();
}

void share_among_directions(Shape& shape, const Request& request, Rank rank, const RankNames& names) {
  const std::size_t dimensions = std::max<std::size_t>(shape.dims.size(), 1);
  const Examiner examiner(request, rank, 0, names);
  examiner.exchanged(shape, 2 * dimensions, "directions");
  for (std::size_t d = 0; d < shape.periodic.size() && !shape.input_splits.empty(); ++d)
    if (shape.periodic[d] && shape.dims[d] == 1) examiner.demand_own_parts(shape, d);
}

}  // namespace ranvier::engine
