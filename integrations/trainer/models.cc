#include "integrations/trainer/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::trainer {
namespace {

constexpr std::array<std::string_view, 6> names{"cnn", "mlp", "resnet", "gan", "lstm", "transformer"};

}  // namespace

std::span<const std::string_view> model_names() { return names; }
bool learns_text(std::string_view model) { return model == "lstm" || model == "transformer"; }

void check_model(std::string_view model, const Dataset& data) {
  if (std::ranges::find(names, model) == names.end())
    throw Error(ErrorKind::usage, unknown_name("model", model, names));
  const auto* images = std::get_if<Images>(&data.content);
  if (learns_text(model) && images != nullptr)
    throw Error(ErrorKind::usage,
                fmt::format("--model {} learns from text and --data has images; name a file of text", model));
  if (!learns_text(model) && images == nullptr)
    throw Error(ErrorKind::usage, fmt::format("--model {} learns from images and --data is a file of text; take lstm "
                                              "or transformer, or name a folder of images",
                                              model));
  if (model == "gan" && (images->rows % 4 != 0 || images->columns % 4 != 0))
    throw Error(ErrorKind::usage, fmt::format("--model gan makes images whose sides are multiples of 4, and those of "
                                              "--data are {} x {}",
                                              images->rows, images->columns));
}

}  // namespace ranvier::trainer
