#include "engine/inquiry.h"

#include <fmt/format.h>

namespace ranvier::engine {

std::string explanation(Rank self, const std::optional<Finding>& finding, std::optional<bool> called_elsewhere,
                        const RankNames& rank_name) {
  constexpr std::string_view slow = "; is that rank slow or stuck? a longer timeout gives it more time";
  if (!finding) return std::string(slow);
  const std::string other = rank_name(finding->rank);
  switch (finding->answer.state) {
    case Answer::State::under_way:
      return fmt::format("; {} is in it too; is the network slow? a longer timeout gives it more time", other);
    case Answer::State::ended:
      return fmt::format("; {} has ended it; is the network slow? a longer timeout gives it more time", other);
    case Answer::State::not_called:
    case Answer::State::unknown:
      break;
  }
  const bool not_called = finding->answer.state == Answer::State::not_called;
  const std::string known = fmt::format("; {} {}", other, not_called ? "has not called it, and " : "");
  if (!finding->answer.is_elsewhere) return known + finding->text + std::string(slow);
  if (called_elsewhere == false)
    return fmt::format("{}has been in {}, which {} has not called; call both in the same order on every rank", known,
                       finding->text, rank_name(self));
  return fmt::format(
      "{}has been in {}; if neither can end before the other, change the order of the calls, else a longer timeout "
      "gives that rank more time",
      known, finding->text);
}

}  // namespace ranvier::engine
