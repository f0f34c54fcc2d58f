// The value and the settings of one stage of a spec, read with their ranges: what is wrong is named with the stage.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/spec.h"

namespace ranvier {

class Parameters {
 public:
  explicit Parameters(const StageSpec& stage) : stage_(stage) {}

  std::string_view stage() const { return stage_.name; }
  // The value behind the colon, or a setting by its key ("" is the value). Throws Error{usage} for what is not in
  // range.
  double number(std::string_view key, double otherwise, double least, double most);
  std::optional<double> optional_number(std::string_view key, double least, double most);
  std::size_t count(std::string_view key, std::size_t otherwise, std::size_t least, std::size_t most);
  // A power of two, `most` or a whole chunk at most.
  std::size_t block(std::size_t otherwise, std::string_view key = "block");
  std::size_t block(std::size_t otherwise, std::string_view key, std::size_t most);
  std::string choice(std::string_view key, std::string_view otherwise, std::span<const std::string_view> choices);
  bool has(std::string_view key) const;
  // Throws Error{usage} for what nobody asked for: call it last.
  void end() const;

 private:
  // Empty if there is none.
  std::string_view find(std::string_view key);
  std::string words(std::string_view key) const;

  const StageSpec& stage_;
  std::vector<std::string_view> known_;
};

}  // namespace ranvier
