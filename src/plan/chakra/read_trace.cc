#include <fmt/format.h>

#include <google/protobuf/io/coded_stream.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>
#include <vector>

#include "chakra.pb.h"
#include "plan/import/text_file.h"
#include "ranvier/chakra.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using google::protobuf::io::CodedInputStream;

class Trace {
 public:
  explicit Trace(const std::filesystem::path& path) : file_(path.string()) {
    const std::string bytes = plan::read_text(path);
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
      nodes_.push_back(std::move(node));
      begins_.push_back(begin);
    }
    if (nodes_.empty()) refuse("there is no node in it");
    for (const auto& node : nodes_)
      for (const std::uint64_t before : dependencies(node))
        if (!place_.contains(before))
          refuse(fmt::format("{} depends on node {}, which is not there", named(node), before));
  }

  Workload workload(const std::string& name) const {
    const auto order = in_order();
    const auto waited_for = computed_behind(order);
    const bool has_device = std::ranges::any_of(nodes_, [](const auto& node) { return is_of_device(node); });
    Workload result{.name = name, .degrees = {}, .layers = {}};
    // A step goes through weight gradients from the last layer to the first, waits for what the input gradient of a
    // layer sends, and goes on beside what its weight gradient sends: the order that a trace needs.
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      const chakra::Node& node = nodes_[*at];
      Layer layer{.name = printable(node.name())};
      if (node.type() == chakra::COMPUTE) {
        if (has_device && !is_of_device(node)) continue;
        layer.weight_gradient.compute_ns = static_cast<double>(node.duration_micros()) * 1e3;
      } else if (auto what = communication(node)) {
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
  // process above its threads.
  std::vector<std::uint64_t> dependencies(const chakra::Node& node) const {
    std::vector<std::uint64_t> all(node.data_deps().begin(), node.data_deps().end());
    std::ranges::copy_if(node.ctrl_deps(), std::back_inserter(all),
                         [&](std::uint64_t caller) { return place_.contains(caller); });
    return all;
  }

  static std::optional<std::int64_t> attribute(const chakra::Node& node, std::string_view name) {
    for (const auto& each : node.attr()) {
      if (each.name() != name) continue;
      switch (each.value_case()) {
        case chakra::Attribute::kInt32Val:
          return each.int32_val();
        case chakra::Attribute::kInt64Val:
          return each.int64_val();
        case chakra::Attribute::kUint32Val:
          return each.uint32_val();
        case chakra::Attribute::kUint64Val:
          return static_cast<std::int64_t>(each.uint64_val());
        case chakra::Attribute::kBoolVal:
          return each.bool_val() ? 1 : 0;
        case chakra::Attribute::VALUE_NOT_SET:
          break;
      }
    }
    return std::nullopt;
  }

  static bool is_of_device(const chakra::Node& node) {
    return node.type() == chakra::COMPUTE && attribute(node, "is_cpu_op") == 0;
  }

  // None for what sends nothing: barriers, receives (their sends count), memory.
  std::optional<Communication> communication(const chakra::Node& node) const {
    if (node.type() != chakra::SEND && node.type() != chakra::COLLECTIVE) return std::nullopt;
    const auto bytes = attribute(node, "comm_size");
    if (!bytes || *bytes < 0) refuse(fmt::format("{} communicates and has no attribute comm_size", named(node)));
    if (static_cast<double>(*bytes) > plan::most_collective_bytes)
      refuse(fmt::format("{} communicates {} bytes, more than the {:g} of any collective", named(node), *bytes,
                         plan::most_collective_bytes));
    if (node.type() == chakra::SEND) return Communication{Collective::send, static_cast<double>(*bytes), Role::forward};
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

  // By dependencies; of nodes that may run, the one that started first, then the lowest number.
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
    if (order.size() < nodes_.size()) {
      const auto stuck = static_cast<std::size_t>(
          std::ranges::find_if(missing, [](std::size_t count) { return count > 0; }) - missing.begin());
      refuse(fmt::format("{} waits for itself around a circle", named(nodes_[stuck])));
    }
    return order;
  }

  // Whether a node that computes depends on it, over any number of others.
  std::vector<bool> computed_behind(const std::vector<std::size_t>& order) const {
    std::vector<bool> behind(nodes_.size());
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      const bool computes = nodes_[*at].type() == chakra::COMPUTE;
      for (const std::uint64_t before : dependencies(nodes_[*at]))
        if (computes || behind[*at]) behind[place_.at(before)] = true;
    }
    return behind;
  }

  std::string file_;
  std::vector<chakra::Node> nodes_;
  std::vector<int> begins_;  // byte of each
  std::unordered_map<std::uint64_t, std::size_t> place_;
};

}  // namespace

Workload read_chakra_trace(const std::filesystem::path& path) { return Trace(path).workload(path.stem().string()); }

}  // namespace ranvier
