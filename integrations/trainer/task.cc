#include "integrations/trainer/task.h"

#include <ATen/TensorOperators.h>

#include "integrations/trainer/models.h"

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

std::unique_ptr<Task> make_task(std::string_view model, const Dataset& data, std::uint64_t seed, ModelTeam& team) {
  check_model(model, data);
  if (learns_text(model)) return text_task(model, std::get<Text>(data.content));
  const auto& images = std::get<Images>(data.content);
  if (model == "gan") return adversarial_task(images, seed);
  return team.way() == Division::Way::pipeline ? image_pipeline(model, images, team) : image_task(model, images, team);
}

}  // namespace ranvier::trainer
