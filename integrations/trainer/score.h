// How good a model is on the test samples.
#pragma once

#include <optional>

namespace ranvier::trainer {

struct Score {
  double loss = 0;
  std::optional<double> accuracy = {};            // share of samples, or of characters, that it is right about
  std::optional<double> bits_per_character = {};  // of models of text
  std::optional<double> frechet_distance = {};    // of makers of images, from the test images: adversarial_task.cc
  // What --target-loss is about: the distance where there is one.
  double to_lower() const { return frechet_distance.value_or(loss); }
};

}  // namespace ranvier::trainer
