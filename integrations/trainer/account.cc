#include "integrations/trainer/account.h"

#include <algorithm>
#include <array>

#include "ranvier/server.h"

namespace ranvier::trainer {
namespace {

double mean_of_workers(const std::vector<double>& by_rank, const std::vector<int>& groups) {
  double sum = 0;
  double workers = 0;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (!trains(groups, rank)) continue;
    sum += by_rank[rank];
    ++workers;
  }
  return sum / workers;
}

}  // namespace

std::chrono::nanoseconds Account::end(const Mark& mark, const Synchronizer& sync) {
  add_traffic(mark, sync);
  return add_time(mark);
}

void Account::add_traffic(const Mark& mark, const Synchronizer& sync) {
  const SyncTraffic now = sync.traffic();
  bytes_.first += static_cast<double>(now.bytes_inside - mark.traffic.bytes_inside);
  bytes_.second += static_cast<double>(now.bytes_between - mark.traffic.bytes_between);
  rounds_.first += now.rounds_inside - mark.traffic.rounds_inside;
  rounds_.second += now.rounds_between - mark.traffic.rounds_between;
  losses_ +=
      {.due = now.losses.due - mark.traffic.losses.due, .missing = now.losses.missing - mark.traffic.losses.missing};
}

void Account::conclude(TrainResult& result, Communicator& comm) const {
  const std::chrono::duration<double> waited = waited_;
  std::array<double, 3> means{bytes_.first, bytes_.second, model_bytes_};
  comm.all_reduce(means, {.op = ReduceOp::average});
  std::array<std::int64_t, 2> losses{static_cast<std::int64_t>(losses_.due),
                                     static_cast<std::int64_t>(losses_.missing)};
  if (comm.tolerated_loss() > 0) comm.all_reduce(losses);
  result.losses = {.due = static_cast<std::uint64_t>(losses[0]), .missing = static_cast<std::uint64_t>(losses[1])};
  const std::array<double, 1> exposed{waited.count() / std::max(seconds(), 1e-9)};
  auto& by_rank = result.exposed_communication_by_rank;
  by_rank.resize(static_cast<std::size_t>(comm.world()));
  comm.all_gather(exposed, by_rank);
  result.bytes_inside = means[0];
  result.bytes_between = means[1];
  result.bytes_model = means[2];
  result.bytes_sent_per_worker = means[0] + means[1] + means[2];
  result.exposed_communication_share = mean_of_workers(by_rank, result.groups);
  result.rounds_inside = rounds_.first;
  result.rounds_between = rounds_.second;
  result.seconds = seconds();
}

}  // namespace ranvier::trainer
