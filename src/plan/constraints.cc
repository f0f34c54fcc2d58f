// Linear constraints as people write them: "b0>=b1", "2*b0 - b1 <= 300GB/s", "b0>=b1>=b2",
// "2*(b0 + b1)/3 <= 300".
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "plan/import/text_file.h"
#include "ranvier/design.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

struct Sum {
  std::vector<double> coefficients;
  double constant = 0;
};

class Parser {
 public:
  Parser(std::string_view text, std::size_t dimensions) : text_(text), dimensions_(dimensions) {}

  std::vector<Constraint> parse() {
    std::vector<Constraint> result;
    Sum left = sum();
    do {
      const Relation how = relation();
      const Sum right = sum();
      Constraint constraint{.text = std::string(text_), .coefficients = left.coefficients, .relation = how};
      bool constant = true;
      for (std::size_t i = 0; i < dimensions_; ++i) {
        constraint.coefficients[i] -= right.coefficients[i];
        constant = constant && constraint.coefficients[i] == 0;
      }
      constraint.limit = right.constant - left.constant;
      if (constant) refuse(0, "it is about no bandwidth");
      result.push_back(std::move(constraint));
      left = right;
      skip_blanks();
    } while (at_ < text_.size());
    return result;
  }

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view what) const {
    throw Error(ErrorKind::usage,
                fmt::format("constraint '{}', column {}: {}; write it as b0 >= b1 or 2*b0 + b1 <= "
                            "300, with b0 to b{} in GB/s",
                            plan::quotable(text_, plan::most_letters_of_a_flag), at + 1, what, dimensions_ - 1));
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Relation relation() {
    if (take("<=") || take("=<")) return Relation::at_most;
    if (take(">=") || take("=>")) return Relation::at_least;
    if (take("==") || take("=")) return Relation::equal;
    if (take("<")) return Relation::at_most;  // bandwidths are real numbers: the optimum of both is the same
    if (take(">")) return Relation::at_least;
    skip_blanks();
    refuse(at_, at_ == text_.size() ? "'<=', '>=' or '=' is missing" : "'<=', '>=' or '=' is expected here");
  }

  Sum sum() {
    Sum result{.coefficients = std::vector<double>(dimensions_)};
    double sign = take("-") ? -1 : 1;
    for (;;) {
      product(sign, result);
      if (take("+"))
        sign = 1;
      else if (take("-"))
        sign = -1;
      else
        return result;
    }
  }

  // 300, 300GB/s, b0, 2*b0, 2 b0, b0*2, b0/2, 2*(b0 + b1)
  void product(double sign, Sum& result) {
    skip_blanks();
    const std::size_t start = at_;
    Sum all = factor();
    for (;;) {
      skip_blanks();
      const std::size_t at = at_;
      if (take("/")) {
        const std::size_t by = at_;
        const Sum divisor = factor();
        if (!is_constant(divisor)) refuse(by, "what divides has to be a number");
        if (divisor.constant == 0) refuse(by, "nothing is divided by 0");
        scale(all, 1 / divisor.constant);
      } else if (take("*") || (is_constant(all) && begins_another())) {
        const Sum other = factor();
        if (!is_constant(all) && !is_constant(other)) refuse(at, "one side of '*' has to be a number");
        const double times = is_constant(all) ? all.constant : other.constant;
        if (is_constant(all)) all = other;
        scale(all, times);
      } else {
        break;
      }
    }
    for (const double each : all.coefficients)
      if (!std::isfinite(each)) refuse(start, "this is no number");
    if (!std::isfinite(all.constant)) refuse(start, "this is no number");
    for (std::size_t i = 0; i < dimensions_; ++i) result.coefficients[i] += sign * all.coefficients[i];
    result.constant += sign * all.constant;
  }

  static bool is_constant(const Sum& sum) {
    return std::ranges::all_of(sum.coefficients, [](double each) { return each == 0; });
  }
  static void scale(Sum& sum, double times) {
    for (double& each : sum.coefficients) each *= times;
    sum.constant *= times;
  }
  // "2 b0", "2 (b0 + b1)"
  bool begins_another() {
    skip_blanks();
    return at_ < text_.size() && (text_[at_] == 'b' || text_[at_] == '(');
  }

  Sum factor() {
    constexpr int most_parentheses = 100;
    Sum result{.coefficients = std::vector<double>(dimensions_)};
    if (const auto number = unsigned_number()) {
      result.constant = *number;
      return result;
    }
    const std::size_t start = at_;
    if (take("(")) {
      if (++depth_ > most_parentheses) refuse(start, "parentheses are too deep");
      result = sum();
      --depth_;
      if (!take(")")) refuse(at_, "')' is missing");
      return result;
    }
    if (!take("b")) refuse(start, "a number or a bandwidth is expected here");
    std::size_t dimension = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dimension);
    if (problem != std::errc{}) refuse(start, "a bandwidth is b and the number of its dimension");
    if (dimension >= dimensions_)
      refuse(start, fmt::format("there is no b{}: the network has {} dimensions", dimension, dimensions_));
    at_ = static_cast<std::size_t>(end - text_.data());
    result.coefficients[dimension] = 1;
    return result;
  }

  std::optional<double> unsigned_number() {
    skip_blanks();
    if (at_ == text_.size() || (text_[at_] != '.' && std::isdigit(static_cast<unsigned char>(text_[at_])) == 0))
      return std::nullopt;
    const std::size_t start = at_;
    double number = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (problem != std::errc{}) refuse(start, "this is no number");
    at_ = static_cast<std::size_t>(end - text_.data());
    for (const auto& [unit, scale] : bandwidth_units) {
      if (!take(unit)) continue;
      number *= scale;
      break;
    }
    if (!std::isfinite(number)) refuse(start, "this is no number");
    return number;
  }

  std::string_view text_;
  std::size_t dimensions_;
  std::size_t at_ = 0;
  int depth_ = 0;  // of parentheses
};

}  // namespace

std::vector<Constraint> parse_constraints(std::string_view text, std::size_t dimensions) {
  return Parser(text, dimensions).parse();
}

}  // namespace ranvier
