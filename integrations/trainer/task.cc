#include "integrations/trainer/task.h"

#include "integrations/trainer/models.h"

namespace ranvier::trainer {

std::unique_ptr<Task> make_task(std::string_view model, const Dataset& data, std::uint64_t seed) {
  check_model(model, data);
  if (learns_text(model)) return text_task(model, std::get<Text>(data.content));
  const auto& images = std::get<Images>(data.content);
  return model == "gan" ? adversarial_task(images, seed) : image_task(model, images);
}

}  // namespace ranvier::trainer
