#include <fmt/format.h>

#include <google/protobuf/io/coded_stream.h>
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>
#include <vector>

#include "chakra.pb.h"
#include "plan/import/gzip.h"
#include "plan/import/text_file.h"
#include "plan/workloads/models.h"
#include "ranvier/chakra.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

using google::protobuf::io::CodedInputStream;

// "step.0" of step.0.et and of step.0.et.gz.
std::string name_of(const std::filesystem::path& path) {
  return std::filesystem::path(plan::without_gz(path.filename().string())).stem().string();
}

class Trace {
 public:
  explicit Trace(const std::filesystem::path& path)
      : file_(path.string()), rank_(rank_of(std::filesystem::path(name_of(path)).extension().string())) {
    // Those of PyTorch have some hundred bytes for each operator.
    constexpr std::size_t most_bytes = std::size_t{1} << 30;
    const std::string bytes = plan::read_text(path, most_bytes);
    CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
    chakra::Metadata metadata;
    read(stream, metadata, "metadata");
    while (stream.CurrentPosition() < static_cast<int>(bytes.size())) {
      const int begin = stream.CurrentPosition();
      chakra::Node node;
      read(stream, node, "node");
      const auto [found, added] = place_.emplace(node.id(), nodes_.size());
      if (!added)
        refuse(
            fmt::format("two nodes have the number {}, at bytes {} and {}", node.id(), begins_[found->second], begin));
      // What tensors an operation takes would be most of what is kept.
      if (node.type() != chakra::METADATA) node.clear_inputs();
      nodes_.push_back(std::move(node));
      begins_.push_back(begin);
    }
    if (nodes_.empty()) refuse("there is no node in it");
    for (const auto& node : nodes_)
      for (const std::uint64_t before : dependencies(node))
        if (!place_.contains(before))
          refuse(fmt::format("{} depends on node {}, which is not there", named(node), before));
    has_device_ = std::ranges::any_of(nodes_, [](const auto& node) { return is_of_device(node); });
    order_ = in_order();
    if (order_.size() < nodes_.size()) {
      // Converters up to schema 1.0.1 numbered callers otherwise than nodes, so that many would call themselves.
      by_callers_ = false;
      order_ = in_order();
    }
    if (order_.size() < nodes_.size()) {
      std::vector<bool> runs(nodes_.size());
      for (const std::size_t each : order_) runs[each] = true;
      refuse(fmt::format("{} waits for itself around a circle",
                         named(nodes_[std::ranges::find(runs, false) - runs.begin()])));
    }
  }

  ExecutionTrace graph(const std::string& name) const {
    ExecutionTrace result{.name = name, .operations = {}, .process_groups = process_groups()};
    std::vector<std::size_t> number(nodes_.size());  // of its operation
    bool takes_time = false;
    for (const std::size_t at : order_) {
      const chakra::Node& node = nodes_[at];
      Operation operation{.name = named(node)};
      if (computes(node))
        operation.compute_ns = nanoseconds(node);
      else if (auto what = communication(node))
        take_groups(node, *what, operation);
      for (const std::uint64_t before : dependencies(node)) operation.after.push_back(number[place_.at(before)]);
      takes_time = takes_time || computes(node) || operation.communication;
      number[at] = result.operations.size();
      result.operations.push_back(std::move(operation));
    }
    if (!takes_time) refuse("none of its nodes computes or communicates");
    return result;
  }

  Workload workload(const std::string& name) const {
    const auto waited_for = computed_behind();
    Workload result{.name = name, .degrees = {}, .layers = {}};
    // A step goes through weight gradients from the last layer to the first, waits for what the input gradient of a
    // layer sends, and goes on beside what its weight gradient sends: the order that a trace needs.
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      const chakra::Node& node = nodes_[*at];
      Layer layer{.name = printable(node.name())};
      if (node.type() == chakra::COMPUTE) {
        if (!computes(node)) continue;
        layer.weight_gradient.compute_ns = nanoseconds(node);
      } else if (auto what = node.type() == chakra::RECEIVE ? std::nullopt : communication(node)) {
        const bool waits = waited_for[*at];
        what->role = waits ? Role::forward : Role::weight_gradient;
        (waits ? layer.input_gradient : layer.weight_gradient).communications = {*what};
      } else {
        continue;
      }
      result.layers.push_back(std::move(layer));
    }
    if (result.layers.empty()) refuse("none of its nodes computes or communicates");
    return result;
  }

 private:
  // Of the file, as ASTRA-sim names them: step.3.et.
  static std::optional<std::int64_t> rank_of(std::string_view extension) {
    return extension.empty() ? std::nullopt : parse_number<std::int64_t>(extension.substr(1));
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::config, fmt::format("{}: {}; is it a Chakra execution trace?", file_, what));
  }

  std::string named(const chakra::Node& node) const {
    return fmt::format("node {} ({}) at byte {}", node.id(), printable(node.name()), begins_[place_.at(node.id())]);
  }

  template <class Message>
  void read(CodedInputStream& stream, Message& message, std::string_view what) const {
    const int begin = stream.CurrentPosition();
    std::uint32_t length = 0;
    const bool known = stream.ReadVarint32(&length);
    // The limit of the stream, the end of the file, would end the message without a word.
    const int left = stream.BytesUntilLimit();
    if (known && static_cast<std::int64_t>(length) > left)
      refuse(
          fmt::format("the {} at byte {} has {} bytes, and the file ends after {} of them", what, begin, length, left));
    const auto limit = stream.PushLimit(static_cast<int>(length));
    if (!known || static_cast<int>(length) < 0 || !message.ParseFromCodedStream(&stream) ||
        stream.BytesUntilLimit() != 0)
      refuse(fmt::format("the {} at byte {} cannot be read", what, begin));
    stream.PopLimit(limit);
  }

  // Names go into tables and JSON.
  static std::string printable(std::string name) {
    for (char& letter : name)
      if (static_cast<unsigned char>(letter) < 0x20 || static_cast<unsigned char>(letter) > 0x7e) letter = '?';
    return name;
  }

  // Control dependencies name callers, some of which the converter of PyTorch's traces has left out, such as the
  // process above its threads. Those that contradict data dependencies say nothing: Chakra's own feeder goes by data
  // alone.
  std::vector<std::uint64_t> dependencies(const chakra::Node& node) const {
    std::vector<std::uint64_t> all(node.data_deps().begin(), node.data_deps().end());
    if (!by_callers_) return all;
    std::ranges::copy_if(node.ctrl_deps(), std::back_inserter(all),
                         [&](std::uint64_t caller) { return place_.contains(caller); });
    return all;
  }

  static const chakra::Attribute* find_attribute(const chakra::Node& node, std::string_view name) {
    const auto found = std::ranges::find_if(node.attr(), [&](const auto& each) { return each.name() == name; });
    return found == node.attr().end() ? nullptr : &*found;
  }

  static std::optional<std::int64_t> attribute(const chakra::Node& node, std::string_view name) {
    const auto* found = find_attribute(node, name);
    if (found == nullptr) return std::nullopt;
    switch (found->value_case()) {
      case chakra::Attribute::kInt32Val:
        return found->int32_val();
      case chakra::Attribute::kInt64Val:
        return found->int64_val();
      case chakra::Attribute::kUint32Val:
        return found->uint32_val();
      case chakra::Attribute::kUint64Val:
        return static_cast<std::int64_t>(found->uint64_val());
      case chakra::Attribute::kBoolVal:
        return found->bool_val() ? 1 : 0;
      case chakra::Attribute::kBoolList:
      case chakra::Attribute::kStringVal:
      case chakra::Attribute::VALUE_NOT_SET:
        break;
    }
    return std::nullopt;
  }

  static bool is_of_device(const chakra::Node& node) {
    return node.type() == chakra::COMPUTE && attribute(node, "is_cpu_op") == 0;
  }
  static bool is_of_host(const chakra::Node& node) { return attribute(node, "is_cpu_op") == 1; }

  // The host's calls take no time of the step where a device computes. What does not say where it runs does so there,
  // as in ASTRA-sim.
  bool computes(const chakra::Node& node) const {
    return node.type() == chakra::COMPUTE && !(has_device_ && is_of_host(node));
  }

  double nanoseconds(const chakra::Node& node) const {
    // Traces that nothing was timed for, as ASTRA-sim's roofline takes them, count floating-point operations instead:
    // two of a multiply-add, at the rate of ready-made workloads.
    if (const auto operations = attribute(node, "num_ops");
        node.duration_micros() == 0 && operations && *operations > 0)
      return static_cast<double>(*operations) / 2 / plan::npu_multiply_adds_per_ns;
    constexpr double most = 1e18;
    const double ns = static_cast<double>(node.duration_micros()) * 1e3;
    if (ns > most) refuse(fmt::format("{} takes {:g} ns, more than the {:g} of any step", named(node), ns, most));
    return ns;
  }

  // None for what moves nothing between ranks: barriers, memory.
  std::optional<Communication> communication(const chakra::Node& node) const {
    if (node.type() != chakra::SEND && node.type() != chakra::RECEIVE && node.type() != chakra::COLLECTIVE)
      return std::nullopt;
    const auto bytes = attribute(node, "comm_size");
    // Up to schema 1.0.3 the host's call has that type as well as the kernel behind it.
    if (!bytes && is_of_host(node)) return std::nullopt;
    if (!bytes || *bytes < 0) refuse(fmt::format("{} communicates and has no attribute comm_size", named(node)));
    if (static_cast<double>(*bytes) > plan::most_collective_bytes)
      refuse(fmt::format("{} communicates {} bytes, more than the {:g} of any collective", named(node), *bytes,
                         plan::most_collective_bytes));
    if (node.type() != chakra::COLLECTIVE)
      return Communication{node.type() == chakra::SEND ? Collective::send : Collective::recv,
                           static_cast<double>(*bytes), Role::forward};
    // In the order of the schema's CollectiveCommType.
    constexpr Collective kinds[] = {Collective::all_reduce, Collective::reduce,         Collective::all_gather,
                                    Collective::gather,     Collective::scatter,        Collective::broadcast,
                                    Collective::all_to_all, Collective::reduce_scatter, Collective::reduce_scatter,
                                    Collective::barrier};
    const auto kind = attribute(node, "comm_type");
    if (!kind || *kind < 0 || *kind >= std::ssize(kinds))
      refuse(fmt::format("{} is a collective of no known comm_type", named(node)));
    if (kinds[*kind] == Collective::barrier) return std::nullopt;
    return Communication{kinds[*kind], static_cast<double>(*bytes), Role::forward};
  }

  // Who takes part, in the words of ASTRA-sim and of PyTorch.
  void take_groups(const chakra::Node& node, const Communication& what, Operation& operation) const {
    operation.communication = what;
    const auto* group = find_attribute(node, "pg_name");
    if (group != nullptr && group->has_string_val())
      operation.process_group = printable(group->string_val());
    else if (const auto number = attribute(node, "pg_name"))
      operation.process_group = fmt::format("{}", *number);
    if (const auto* spanned = find_attribute(node, "involved_dim"))
      operation.dimensions.assign(spanned->bool_list().values().begin(), spanned->bool_list().values().end());
    if (node.type() == chakra::COLLECTIVE) return;
    auto from = attribute(node, "comm_src"), to = attribute(node, "comm_dst");
    auto& own = node.type() == chakra::SEND ? from : to;  // which ASTRA-sim's traces leave out
    if (!own) own = rank_;
    if (!from || !to) return;
    if (std::min(*from, *to) < 0 || std::max(*from, *to) > most_rank)
      refuse(fmt::format("{} is between ranks {} and {}, which no network has", named(node), *from, *to));
    operation.ends.emplace(static_cast<Rank>(*from), static_cast<Rank>(*to));
  }

  std::vector<Rank> ranks_of(const nlohmann::json& list, const chakra::Node& node) const {
    std::vector<Rank> ranks;
    std::set<Rank> seen;
    for (const auto& each : list.get_ref<const nlohmann::json::array_t&>()) {
      const bool is_rank = each.is_number_unsigned() && each.get<std::uint64_t>() <= std::uint64_t{most_rank};
      if (!is_rank || !seen.insert(each.get<Rank>()).second)
        refuse(fmt::format("{} has a process group whose ranks are not whole numbers from 0 to {}, each of them once",
                           named(node), most_rank));
      ranks.push_back(each.get<Rank>());
    }
    return ranks;
  }

  // PyTorch's own list of them, as the converter of its traces writes that: ['[{"pg_name": "0", "ranks": [0, 1], …}]'].
  ProcessGroups process_groups() const {
    ProcessGroups groups;
    for (const auto& node : nodes_) {
      const std::string& text = node.inputs().values();
      const auto begin = text.find("[{"), end = text.rfind("}]");
      if (node.name() != "## process_group:init ##" || begin == text.npos || end == text.npos || end < begin) continue;
      try {
        const auto list = nlohmann::json::parse(text.substr(begin, end + 2 - begin));
        for (const auto& each : list)
          groups[printable(each.at("pg_name").get<std::string>())] = ranks_of(each.at("ranks"), node);
      } catch (const nlohmann::json::exception&) {
        refuse(fmt::format("{} has process groups that cannot be read", named(node)));
      }
    }
    return groups;
  }

  // By dependencies, without what waits for itself; of nodes that may run, the one that started first, then the lowest
  // number.
  std::vector<std::size_t> in_order() const {
    std::vector<std::size_t> missing(nodes_.size());
    std::vector<std::vector<std::size_t>> after(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      for (const std::uint64_t before : dependencies(nodes_[i])) {
        ++missing[i];
        after[place_.at(before)].push_back(i);
      }
    const auto later = [&](std::size_t a, std::size_t b) {
      return std::pair(nodes_[a].start_time_micros(), nodes_[a].id()) >
             std::pair(nodes_[b].start_time_micros(), nodes_[b].id());
    };
    std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> free(later);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (missing[i] == 0) free.push(i);
    std::vector<std::size_t> order;
    while (!free.empty()) {
      const std::size_t next = free.top();
      free.pop();
      order.push_back(next);
      for (const std::size_t each : after[next])
        if (--missing[each] == 0) free.push(each);
    }
    return order;
  }

  // Whether a node that computes depends on it, over any number of others.
  std::vector<bool> computed_behind() const {
    std::vector<bool> behind(nodes_.size());
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      const bool computes = nodes_[*at].type() == chakra::COMPUTE;
      for (const std::uint64_t before : dependencies(nodes_[*at]))
        if (computes || behind[*at]) behind[place_.at(before)] = true;
    }
    return behind;
  }

  static constexpr std::int64_t most_rank = std::numeric_limits<Rank>::max();

  std::string file_;
  std::optional<std::int64_t> rank_;  // whose trace it is
  std::vector<chakra::Node> nodes_;
  std::vector<int> begins_;  // byte of each
  std::unordered_map<std::uint64_t, std::size_t> place_;
  bool has_device_ = false;
  bool by_callers_ = true;
  std::vector<std::size_t> order_;  // in which nodes run
};

}  // namespace

Workload read_chakra_trace(const std::filesystem::path& path) { return Trace(path).workload(name_of(path)); }
ExecutionTrace read_chakra_graph(const std::filesystem::path& path) { return Trace(path).graph(name_of(path)); }

}  // namespace ranvier
