// Workloads as TOML.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "plan/import/text_file.h"
#include "plan/import/toml_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/workload_file.h"

namespace ranvier {
namespace {

using plan::in_quotes;

constexpr std::array<std::pair<Role, std::string_view>, role_count> roles{{{Role::tensor, "tensor"},
                                                                           {Role::data, "data"},
                                                                           {Role::expert, "expert"},
                                                                           {Role::expert_data, "expert_data"},
                                                                           {Role::pipeline, "pipeline"},
                                                                           {Role::forward, "forward"},
                                                                           {Role::input_gradient, "input_gradient"},
                                                                           {Role::weight_gradient, "weight_gradient"}}};

constexpr std::array<std::pair<Phase Layer::*, std::string_view>, 3> passes{
    {{&Layer::forward, "forward"},
     {&Layer::input_gradient, "input_gradient"},
     {&Layer::weight_gradient, "weight_gradient"}}};

constexpr std::int64_t most_of_a_degree = 1 << 24;

class WorkloadReader {
 public:
  explicit WorkloadReader(const std::filesystem::path& path) : file_(path) {}

  Workload read() const {
    const auto& root = file_.root();
    file_.allow_keys(root, "a workload", {"name", "other_ns", "fills", "ranks", "degrees", "layer"});
    Workload workload{.name = file_.text(root, "name", "workload"), .degrees = {}, .layers = {}};
    workload.idle_ns = file_.amount(root, "other_ns", 0);
    workload.fills = fills(root);
    if (const auto* node = root.get("ranks")) workload.recorded_npus = file_.whole(*node, 1, most_of_a_degree);
    if (const auto* node = root.get("degrees")) workload.degrees = degrees(file_.table(*node, "degrees"));
    for (const auto& each : file_.list(root, "layer")) workload.layers.push_back(layer(file_.table(each, "a layer")));
    if (workload.layers.empty()) file_.refuse(root.source(), "there is no [[layer]] in it");
    return workload;
  }

 private:
  // One micro-batch fills all stages for as many passes as there are of these, less one.
  double fills(const toml::table& root) const {
    const auto* node = root.get("fills");
    return node == nullptr ? 0 : file_.amount(*node, most_of_a_degree);
  }

  Degrees degrees(const toml::table& table) const {
    Degrees result;
    file_.allow_keys(table, "degrees", {"tensor", "expert", "data", "pipeline"});
    const std::pair<std::string_view, int*> all[] = {
        {"tensor", &result.tensor}, {"expert", &result.expert}, {"data", &result.data}, {"pipeline", &result.pipeline}};
    for (const auto& [key, degree] : all)
      if (const auto* node = table.get(key))
        *degree = static_cast<int>(file_.whole(*node, key == "data" ? 0 : 1, most_of_a_degree));
    return result;
  }

  Layer layer(const toml::table& table) const {
    file_.allow_keys(table, "a layer",
                     {"name", "forward_ns", "input_gradient_ns", "weight_gradient_ns", "communications"});
    Layer result{.name = file_.text(table, "name", "")};
    for (const auto& [pass, name] : passes)
      (result.*pass).compute_ns = file_.amount(table, fmt::format("{}_ns", name), 0);
    for (const auto& node : file_.list(table, "communications"))
      communication(result, file_.table(node, "a communication"));
    return result;
  }

  void communication(Layer& layer, const toml::table& table) const {
    file_.allow_keys(table, "a communication", {"pass", "collective", "bytes", "role"});
    const auto need = [&](std::string_view key) -> const toml::node& {
      return file_.need(table, key, "a communication");
    };
    const std::string collective = file_.text(need("collective"));
    const auto kind = parse_collective(collective);
    if (!kind) {
      std::vector<std::string_view> known;
      for (const Collective each : all_collectives) known.push_back(name_of(each));
      file_.refuse(need("collective").source(), unknown_name("collective", collective, known));
    }
    if (*kind == Collective::barrier || *kind == Collective::recv)
      file_.refuse(need("collective").source(), fmt::format("a {} sends nothing; leave it out", collective));
    const Communication result{.collective = *kind,
                               .bytes = file_.amount(need("bytes"), plan::most_collective_bytes),
                               .role = one_of(roles, need("role"), "role")};
    (layer.*one_of(passes, need("pass"), "pass")).communications.push_back(result);
  }

  template <class Value, std::size_t n>
  Value one_of(const std::array<std::pair<Value, std::string_view>, n>& names, const toml::node& node,
               std::string_view kind) const {
    const std::string word = file_.text(node);
    std::vector<std::string_view> known;
    for (const auto& [value, name] : names) {
      if (name == word) return value;
      known.push_back(name);
    }
    file_.refuse(node.source(), unknown_name(kind, word, known));
  }

  plan::TomlFile file_;
};

}  // namespace

std::string_view name_of(Role role) { return roles[static_cast<std::size_t>(role)].second; }

std::string to_toml(const Workload& workload, std::string_view origin) {
  std::string text = fmt::format(
      "# {}\n# Layers stand as the forward pass goes through them; gradients become ready from the last to the first.\n"
      "name = {}\nother_ns = {:.0f}\n{}{}\n[degrees]\ntensor = {}\nexpert = {}\ndata = {}\npipeline = {}\n",
      origin, in_quotes(workload.name), workload.idle_ns,
      workload.fills > 0 ? fmt::format("fills = {}\n", workload.fills) : "",
      workload.recorded_npus > 0 ? fmt::format("ranks = {}\n", workload.recorded_npus) : "", workload.degrees.tensor,
      workload.degrees.expert, workload.degrees.data, workload.degrees.pipeline);
  for (const Layer& layer : workload.layers) {
    text += fmt::format("\n[[layer]]\nname = {}\n", in_quotes(layer.name));
    std::string communications;
    for (const auto& [pass, name] : passes) {
      const Phase& phase = layer.*pass;
      if (phase.compute_ns > 0) text += fmt::format("{}_ns = {:.0f}\n", name, phase.compute_ns);
      for (const Communication& each : phase.communications)
        communications += fmt::format("  {{ pass = \"{}\", collective = \"{}\", bytes = {:.0f}, role = \"{}\" }},\n",
                                      name, name_of(each.collective), each.bytes, name_of(each.role));
    }
    if (!communications.empty()) text += fmt::format("communications = [\n{}]\n", communications);
  }
  return text;
}

Workload read_workload(const std::filesystem::path& path) { return WorkloadReader(path).read(); }

Workload rescaled(Workload workload, std::int64_t npus) {
  if (workload.recorded_npus == 0) return workload;
  const double part = static_cast<double>(workload.recorded_npus) / static_cast<double>(npus);
  for (Layer& layer : workload.layers)
    for (const auto& [pass, name] : passes)
      for (Communication& each : (layer.*pass).communications)
        if (each.collective == Collective::all_gather && (each.role == Role::data || each.role == Role::expert_data))
          each.bytes *= part;
  workload.recorded_npus = npus;
  return workload;
}

}  // namespace ranvier
