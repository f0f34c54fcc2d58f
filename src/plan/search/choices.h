// Whole numbers of links, tried one dimension after another as far as a proof of what bandwidths of any size can do
// leaves anything to be found among those that begin alike (A. M. Geoffrion: Lagrangean relaxation for integer
// programming. Mathematical Programming Study 2 (1974)).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ranvier/design.h"

namespace ranvier::plan {

class Choices {
 public:
  using Links = std::vector<double>;  // whole numbers, by dimension

  struct Value {
    double objective = 0;
    double dollars = 0;
  };
  // Told of a choice; says what the objective of others may be at most to be told of, too.
  using Keep = std::function<double(const Links&, const Value&)>;

  // `units`: GB/s of a link by dimension, all above 0. Both outlive it.
  Choices(const DesignProblem&, const std::vector<double>& units);

  // Nothing where constraints do not allow it, or something is sent over no link.
  std::optional<Value> value(const Links&) const;

  // A choice near this one that no link or two more make better, nor those in place of one elsewhere.
  Links improved(Links) const;

  // All choices from `least` to `most` links whose objective may be `worst` or less. False where they are too many: it
  // stops after some then, or before it begins. `proof`: of the problem with all bandwidths between these.
  bool each(const Certificate& proof, const Links& least, const Links& most, double worst, const Keep&) const;

 private:
  class Walk;

  // Of links, of which there may be no more.
  struct Row {
    std::vector<double> coefficients;
    double limit;
  };

  std::vector<double> bandwidth(const Links&) const;
  // Adds links as long as that makes it better.
  void fill(Links&, std::optional<Value>&) const;

  const DesignProblem& problem_;
  const std::vector<double>& units_;
  std::vector<double> dollars_;  // of a link
  std::vector<Row> rows_;
};

}  // namespace ranvier::plan
