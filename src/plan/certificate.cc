// Weights and prices of a scaled problem, carried back to GB/s, bytes and dollars.
#include "plan/convex_form.h"

namespace ranvier::plan {
namespace {

using Eigen::Index;
using Eigen::VectorXd;

constexpr auto cost_row = "cost";

class Carrier {
 public:
  Carrier(const ConvexForm& form, const solver::MinMaxSolution& found)
      : form_(form), found_(found), price_(VectorXd::Zero(form.region.variables)) {}

  Certificate carry() {
    proof_.scale = form_.priced ? 1 / time_cost_scale : 1;
    proof_.step.dimensions = static_cast<std::size_t>(form_.region.variables);
    carry_cases();
    carry_terms();
    for (std::size_t r = 0; r < form_.inequality_rows.size(); ++r)
      add(form_.region.rows[form_.inequality_rows[r]], found_.limit_prices(static_cast<Index>(r)));
    for (std::size_t r = 0; r < form_.equation_rows.size(); ++r)
      add(form_.region.rows[form_.equation_rows[r]], found_.equal_prices(static_cast<Index>(r)));
    pin();
    return std::move(proof_);
  }

 private:
  // The terms of a time_cost problem behind the collectives are its constants, each over the reciprocal of the cost.
  double weight_scale(std::size_t term) const {
    return form_.time_scale * (term < form_.terms.size() ? form_.scale : 1);
  }

  void carry_cases() {
    const auto& weights = form_.program.weights;
    for (Index s = 0; s < weights.rows(); ++s) {
      const double constant = form_.problem.step.cases[static_cast<std::size_t>(s)].constant_ns;
      StepCase one{.constant_ns = form_.priced ? 0 : constant, .weights = {}};
      for (Index k = 0; k < weights.cols(); ++k)
        one.weights.push_back(weights(s, k) * weight_scale(static_cast<std::size_t>(k)));
      proof_.step.cases.push_back(std::move(one));
      proof_.case_weights.push_back(found_.case_weights(s));
    }
  }

  void carry_terms() {
    std::vector<std::size_t> variables;  // of the program -> of the region
    for (std::size_t i = 0; i < form_.pinned.size(); ++i)
      if (!form_.pinned[i]) variables.push_back(i);
    for (std::size_t k = 0; k < form_.program.terms.size(); ++k) {
      TrafficTerm term;
      std::vector<double> weights;
      for (std::size_t l = 0; l < form_.program.terms[k].size(); ++l) {
        const auto& load = form_.program.terms[k][l];
        const std::size_t variable = variables[static_cast<std::size_t>(load.variable)];
        const double unit = form_.unit_of(static_cast<Index>(variable));
        term.loads.push_back({std::uint32_t{1} << variable, load.amount * unit});
        weights.push_back(found_.load_weights[k][l] * weight_scale(k));
      }
      proof_.step.terms.push_back(std::move(term));
      proof_.load_weights.push_back(std::move(weights));
    }
  }

  void add(const Row& row, double price) {
    Constraint constraint{.text = row.text,
                          .coefficients = {row.coefficients.data(), row.coefficients.data() + row.coefficients.size()},
                          .relation = row.equal ? Relation::equal : Relation::at_most,
                          .limit = form_.priced ? row.limit : row.limit * form_.scale};
    for (std::size_t i = 0; i < constraint.coefficients.size(); ++i)
      constraint.coefficients[i] /= form_.unit_of(static_cast<Index>(i));
    double scale = form_.time_scale / form_.scale;
    if (form_.priced) {
      // y is b / cost in units of 1 / cost_scale, and its limits are coefficients of the reciprocal.
      const double objective = form_.time_scale * form_.scale * form_.cost_scale;
      const bool is_cost = row.text == cost_row;
      scale = is_cost ? objective : objective * form_.cost_scale;
      if (is_cost)
        for (double& coefficient : constraint.coefficients) coefficient *= form_.cost_scale;
      else
        constraint.coefficients.back() *= form_.scale;
    }
    append(std::move(constraint), price * scale);
  }

  // Nothing can be had in a pinned dimension, at whatever price.
  void pin() {
    for (Index i = 0; i < form_.region.variables; ++i) {
      if (!form_.pinned[static_cast<std::size_t>(i)]) continue;
      Constraint nothing{.text = "follows from the others",
                         .coefficients = std::vector<double>(form_.pinned.size(), 0),
                         .relation = Relation::equal};
      nothing.coefficients[static_cast<std::size_t>(i)] = 1;
      append(std::move(nothing), -price_(i));
    }
  }

  void append(Constraint constraint, double price) {
    for (Index i = 0; i < price_.size(); ++i) price_(i) += price * constraint.coefficients[static_cast<std::size_t>(i)];
    proof_.prices.push_back(price);
    proof_.constraints.push_back(std::move(constraint));
  }

  const ConvexForm& form_;
  const solver::MinMaxSolution& found_;
  Certificate proof_;
  VectorXd price_;  // by variable, all constraints so far
};

}  // namespace

Certificate certificate(const ConvexForm& form, const solver::MinMaxSolution& found) {
  return Carrier(form, found).carry();
}

}  // namespace ranvier::plan
