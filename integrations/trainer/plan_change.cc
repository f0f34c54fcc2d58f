#include "integrations/trainer/plan_change.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

#include "base/parts.h"

namespace ranvier::trainer {
namespace {

PlanChange without_planning(const PlanChange& current, const WrongPlan& wrong, const std::string& why) {
  if (wrong.measured.step > wrong.planned.step)
    return {.reason = "algorithms are chosen by the model of the links from now on" + why};
  PlanChange same = current;
  same.expected = wrong.measured;
  return same;
}

// Planning takes longer than any collective, while all others wait for rank 0.
constexpr std::chrono::milliseconds time_to_plan = std::chrono::minutes(15);

PlanChange decide(const Replan& replan, const PlanChange& current, const WrongPlan& wrong) {
  if (!replan) return without_planning(current, wrong, "");
  try {
    return replan(current, wrong);
  } catch (const std::exception& problem) {
    // Training goes on as well without a plan: what is wrong with planning is no reason to end it.
    return without_planning(current, wrong, std::string(", since it could not be planned again: ") + problem.what());
  }
}

std::vector<std::byte> packed(const PlanChange& change) {
  std::vector<std::byte> all;
  for (const auto& text : {change.tuning.text(), change.compress, change.reason}) append_text(all, text);
  append_part(all, std::as_bytes(std::span(&change.bucket_bytes, 1)));
  append_part(all, std::as_bytes(std::span(&change.expected, 1)));
  return all;
}

PlanChange unpacked(ConstBytes all) {
  PlanChange change;
  const std::string tuning = take_text(all);
  if (!tuning.empty()) change.tuning = TuningTable::parse(tuning, "the table of rank 0's new plan");
  change.compress = take_text(all);
  change.reason = take_text(all);
  take_values(all, std::span(&change.bucket_bytes, 1));
  take_values(all, std::span(&change.expected, 1));
  return change;
}

}  // namespace

PlanChange agree_on_change(Communicator& comm, const Replan& replan, const PlanChange& current,
                           const WrongPlan& wrong) {
  std::vector<std::byte> message;
  if (comm.rank() == 0) message = packed(decide(replan, current, wrong));
  std::array<double, 1> size{static_cast<double>(message.size())};
  comm.broadcast(size, 0, {.timeout = std::max(time_to_plan, comm.options().timeout)});
  message.resize(static_cast<std::size_t>(size[0]));
  comm.broadcast(TypedSpan(message.data(), message.size(), DType::u8), 0);
  // Rank 0 too goes by what it sent, so that nobody differs.
  return unpacked(message);
}

}  // namespace ranvier::trainer
