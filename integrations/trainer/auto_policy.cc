#include "integrations/trainer/auto_policy.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "integrations/trainer/work_shares.h"

namespace ranvier::trainer {

AutoPolicy::AutoPolicy(Communicator& comm, std::vector<int> nodes, double samples, std::size_t parameters,
                       bool takes_servers)
    : comm_(comm),
      nodes_(std::move(nodes)),
      inside_(comm.split(std::ranges::count(nodes_, nodes_[static_cast<std::size_t>(comm.rank())]) > 1
                             ? nodes_[static_cast<std::size_t>(comm.rank())]
                             : -1)),
      samples_(samples),
      takes_servers_(takes_servers),
      scratch_(parameters) {}

// The shortest of a few, since a core that others use makes any of them longer; of the slowest rank.
double AutoPolicy::seconds_of_average(Communicator* team) {
  constexpr int times = 3;
  std::array<double, 1> shortest{1e9};
  for (int i = 0; i < times; ++i) {
    comm_.barrier();
    const auto started = Clock::now();
    if (team != nullptr) team->all_reduce(scratch_, {.op = ReduceOp::average});
    const std::chrono::duration<double> took = Clock::now() - started;
    shortest[0] = std::min(shortest[0], took.count());
  }
  comm_.all_reduce(shortest, {.op = ReduceOp::max});
  return shortest[0];
}

// Timing costs averages of all parameters: where these are slow, it may take a twentieth of the time, and links change
// more rarely than the pace of workers. As rank 0 sees it.
bool AutoPolicy::is_timing_due() const {
  constexpr int rarely = 20;
  std::array<std::int64_t, 1> due{!timed_ || Clock::now() - *timed_ > rarely * timing_ ? 1 : 0};
  comm_.broadcast(due, 0);
  return due[0] != 0;
}

void AutoPolicy::time_links() {
  const auto began = Clock::now();
  inside_seconds_ = seconds_of_average(inside_.get());
  between_seconds_ = seconds_of_average(&comm_);
  timed_ = Clock::now();
  timing_ = *timed_ - began;
}

std::uint64_t AutoPolicy::bytes_inside() const {
  std::uint64_t sum = 0;
  for (Rank peer = 0; inside_ && peer < inside_->world(); ++peer) sum += inside_->bytes_sent_to(peer);
  return sum;
}

PolicyChoice AutoPolicy::choose(const std::vector<PaceReport>& reports, const PolicyChoice& current) {
  PolicySituation now{.speeds = speeds_of(reports), .nodes = nodes_, .samples = samples_};
  const auto world = static_cast<double>(reports.size());
  double late = 0;  // steps, and their times
  double times = 0;
  for (const auto& each : reports) {
    late += each.late_share;
    times += each.late_share * each.late_factor;
  }
  now.late_share = late / world;
  if (late > 0) now.late_factor = times / late;
  if (is_timing_due()) time_links();
  now.inside_seconds = inside_seconds_;
  now.between_seconds = between_seconds_;
  // Servers own ranges of the parameters on all ranks. A push sends all ranges over its worker's link and gets all
  // back: an average's bytes; the pushes of all workers at once use all links alike, as one average does.
  now.push_seconds = now.between_seconds;
  now.served_seconds = now.between_seconds / world;
  now.takes_servers = takes_servers_;
  return choose_policy(now, current);
}

}  // namespace ranvier::trainer
