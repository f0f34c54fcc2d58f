#include "integrations/trainer/auto_policy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <random>

#include "integrations/trainer/work_shares.h"
#include "ranvier/exchange.h"
#include "ranvier/parameter_server.h"

namespace ranvier::trainer {

namespace {

// To be averaged. Codes of nothing are short and soon made, so that a codec gets values.
std::vector<float> values_of(const std::vector<Tensor>& tensors, bool is_coded) {
  std::size_t count = 0;
  for (const Tensor& each : tensors) count += each.size();
  std::vector<float> all(count);
  std::minstd_rand random(1);
  if (is_coded)
    for (float& each : all) each = static_cast<float>(random()) - 1e9F;
  return all;
}

}  // namespace

AutoPolicy::AutoPolicy(Communicator& comm, std::vector<int> nodes, double samples, std::vector<Tensor> tensors,
                       std::string compress, bool takes_servers)
    : comm_(comm),
      nodes_(std::move(nodes)),
      inside_(comm.split(std::ranges::count(nodes_, nodes_[static_cast<std::size_t>(comm.rank())]) > 1
                             ? nodes_[static_cast<std::size_t>(comm.rank())]
                             : -1)),
      teams_(comm, {}, nodes_),
      samples_(samples),
      tensors_(std::move(tensors)),
      compress_(std::move(compress)),
      takes_servers_(takes_servers && (compress_ == "none" || plan_exchange(compress_).codes_messages())),
      scratch_(values_of(tensors_, compress_ != "none")) {}

// The shortest of a few, since a core that others use makes any of them longer; of the slowest rank.
double AutoPolicy::seconds_of(const std::function<void()>& exchange) {
  constexpr int times = 3;
  std::array<double, 1> shortest{1e9};
  for (int i = 0; i < times; ++i) {
    comm_.barrier();
    const auto started = Clock::now();
    exchange();
    const std::chrono::duration<double> took = Clock::now() - started;
    shortest[0] = std::min(shortest[0], took.count());
  }
  comm_.all_reduce(shortest, {.op = ReduceOp::max});
  return shortest[0];
}

// Timing exchanges all parameters many times: where that is slow, it may take a twentieth of the time, and links change
// more rarely than the pace of workers. As rank 0 sees it.
bool AutoPolicy::is_timing_due() const {
  constexpr int rarely = 20;
  std::array<std::int64_t, 1> due{!timed_ || Clock::now() - *timed_ > rarely * timing_ ? 1 : 0};
  comm_.broadcast(due, 0);
  return due[0] != 0;
}

void AutoPolicy::time_exchanges() {
  const auto began = Clock::now();
  inside_seconds_ = seconds_of([this] {
    if (inside_) inside_->all_reduce(scratch_, {.op = ReduceOp::average});
  });
  const auto average = teams_.exchange_of_everybody(compress_);
  between_seconds_ = seconds_of([&] { average->start({.values = scratch_, .tensors = tensors_})->wait(); });
  if (takes_servers_ && comm_.world() > 1) {
    auto held = scratch_;
    ParameterServer server(comm_, {}, held, 0, {.compress = compress_, .tensors = tensors_});
    const auto push = [&] { server.exchange(scratch_, {}, held); };
    push_seconds_ = seconds_of([&] {
      if (comm_.rank() == 0) push();
    });
    served_seconds_ = seconds_of(push) / static_cast<double>(comm_.world());
    server.leave();
    comm_.barrier();  // all are gone before anybody asks others
  }
  timed_ = Clock::now();
  timing_ = *timed_ - began;
}

std::pair<std::uint64_t, std::uint64_t> AutoPolicy::bytes() const {
  auto sum = teams_.bytes();
  std::vector<Rank> everybody(nodes_.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto counted = replica::bytes_by_node(comm_, everybody, nodes_);
  sum.first -= counted.first;
  sum.second -= counted.second;
  for (Rank peer = 0; inside_ && peer < inside_->world(); ++peer) sum.first += inside_->bytes_sent_to(peer);
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
  if (is_timing_due()) time_exchanges();
  now.inside_seconds = inside_seconds_;
  now.between_seconds = between_seconds_;
  now.push_seconds = push_seconds_;
  now.served_seconds = served_seconds_;
  now.takes_servers = takes_servers_;
  return choose_policy(now, current);
}

}  // namespace ranvier::trainer
