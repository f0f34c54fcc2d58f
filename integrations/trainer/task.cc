#include "integrations/trainer/task.h"

#include <ATen/TensorOperators.h>

#include <variant>

#include "integrations/trainer/image_models.h"
#include "integrations/trainer/models.h"
#include "integrations/trainer/text_models.h"

namespace ranvier::trainer {

double WholeTask::train(std::span<const Pass> passes, double weight, const PassEvents& events) const {
  double mean = 0;
  for (std::size_t number = 0; number < passes.size(); ++number) {
    const Pass& pass = passes[number];
    events.forward(number);
    const auto own = loss(pass.samples, pass.first);
    events.backward(number);
    (weight * pass.share == 1 ? own : own * (weight * pass.share)).backward();
    mean += pass.share * own.item<double>();
  }
  return mean;
}

namespace {

Pieces make_model(std::string_view name, const Images& data, ModelTeam& team) {
  return make_image_model(name,
                          {.channels = static_cast<std::int64_t>(data.channels),
                           .rows = static_cast<std::int64_t>(data.rows),
                           .columns = static_cast<std::int64_t>(data.columns),
                           .classes = static_cast<std::int64_t>(data.classes)},
                          team);
}
Pieces make_model(std::string_view name, const Text& data, ModelTeam& team) {
  return make_text_model(name, static_cast<std::int64_t>(data.characters), team);
}

std::unique_ptr<Examples> examples_in(const Images& data) { return image_examples(data); }
std::unique_ptr<Examples> examples_in(const Text& data) { return text_examples(data); }

}  // namespace

std::unique_ptr<Task> make_task(std::string_view model, const Dataset& data, std::uint64_t seed, ModelTeam& team) {
  check_model(model, data);
  if (model == "gan") return adversarial_task(std::get<Images>(data.content), seed);
  return std::visit(
      [&](const auto& content) {
        return team.way() == Division::Way::pipeline
                   ? classifier_pipeline(make_model(model, content, team), examples_in(content), team)
                   : classifier(make_model(model, content, team), examples_in(content));
      },
      data.content);
}

}  // namespace ranvier::trainer
