// What is learnt from where nothing is named. Apart, since `ranvier doctor` looks for it also in builds without torch.
#pragma once

#include <string_view>

namespace ranvier::trainer {

inline constexpr std::string_view default_data = "fashion-mnist";
inline constexpr std::string_view default_data_package = "dataset-fashion-mnist";  // Debian's
inline constexpr std::string_view default_data_folder = "/usr/share/datasets/fashion-mnist";

}  // namespace ranvier::trainer
