#include "integrations/trainer/auto_policy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>

#include "integrations/trainer/step_times.h"
#include "ranvier/sync.h"

namespace ranvier::trainer {

namespace {

using Seconds = std::chrono::duration<double>;

constexpr int most_times = 3;           // that an exchange is measured, one behind the other
constexpr std::size_t most_steps = 32;  // the last ones, by which averages are judged
constexpr double doubt_of_few = 0.25;   // see PolicySituation
// A push takes all parameters to the servers and back, and those of all workers move at least as much as an average of
// everybody's does where it is made in the best way: no less than this share of what that has taken.
constexpr double least_of_push = 0.5;
constexpr double seconds_to_form = 0.1;           // new connections, encrypted between hosts: of every rank's cores
constexpr std::uint64_t inside_tag = 0x6175746f;  // "auto"
constexpr std::size_t most_inside = 64 << 10;     // floats that are sent to measure a node's own links

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

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

AutoPolicy::AutoPolicy(std::shared_ptr<replica::TeamPool> groups, std::vector<int> nodes, double samples,
                       std::vector<Tensor> tensors, std::string compress, bool takes_servers)
    : comm_(groups->comm()),
      nodes_(std::move(nodes)),
      teams_(std::move(groups), {}, nodes_),
      samples_(samples),
      tensors_(std::move(tensors)),
      compress_(std::move(compress)),
      takes_servers_(takes_servers && comm_.world() > 1 &&
                     (compress_ == "none" || plan_exchange(compress_).codes_messages())) {}

void AutoPolicy::add(const Step& step) { steps_.push_back(step); }

void AutoPolicy::add_pushes(std::chrono::nanoseconds waited, std::uint64_t count) {
  pushing_ += waited;
  pushes_ += count;
}

void AutoPolicy::forget_steps() {
  steps_.clear();
  pushing_ = {};
  pushes_ = 0;
}

bool AutoPolicy::add_paces(std::vector<PaceReport> paces, bool few) {
  knows_little_ = few;
  paces_ = std::move(paces);
  return speeds_.add(paces_);
}

bool AutoPolicy::is_serving(const PolicyChoice& current) const {
  return !current.sync.empty() && make_sync_policy(current.sync, {})->server().has_value();
}

// ---- What training shows.

// Ranks have taken as many steps together, of the same kinds. Behind what pushes have taken of each rank, what it
// waited in its last steps, and what was hidden.
void AutoPolicy::learn(const PolicyChoice& current) {
  // The first ones ever are slower.
  if (!between_ && steps_.size() > warm_up_steps) steps_.erase(steps_.begin(), steps_.begin() + warm_up_steps);
  if (steps_.size() > most_steps) steps_.erase(steps_.begin(), steps_.end() - most_steps);
  std::vector<double> own{pushes_ > 0 ? Seconds(pushing_).count() / static_cast<double>(pushes_) : 0};
  for (const Step& step : steps_) {
    own.push_back(Seconds(step.waited).count());
    own.push_back(Seconds(step.hidden).count());
  }
  const auto world = static_cast<std::size_t>(comm_.world());
  std::vector<double> all(own.size() * world);
  comm_.all_gather(own, all);
  // In groups they have also waited for one another.
  if (is_serving(current) && !make_sync_policy(current.sync, {})->groups()) {
    double sum = 0;
    for (std::size_t rank = 0; rank < world; ++rank) sum += all[rank * own.size()];
    if (sum > 0) push_ = sum / static_cast<double>(world);
  }
  learn_from_steps(all, own.size(), steps_.size(), current.sync.empty() || current.sync == "bsp");
  forget_steps();
}

// Who waits least for an average has kept the others waiting: what that one waits is the exchange. While it computed,
// the exchange may have gone on since its first gradients left, and no longer.
void AutoPolicy::learn_from_steps(const std::vector<double>& all, std::size_t each, std::size_t steps,
                                  bool by_gradients) {
  const auto world = static_cast<std::size_t>(comm_.world());
  std::vector<double> among_all, hidden, inside;
  for (std::size_t step = 0; step < steps; ++step) {
    const auto waited = [&](std::size_t rank) { return all[rank * each + 1 + 2 * step]; };
    if (steps_[step].among_all) {
      std::size_t last = 0;
      for (std::size_t rank = 1; rank < world; ++rank)
        if (waited(rank) < waited(last)) last = rank;
      among_all.push_back(waited(last));
      hidden.push_back(all[last * each + 2 + 2 * step]);
    } else {
      std::map<int, double> of_node;
      for (std::size_t rank = 0; rank < world; ++rank) {
        double& least = of_node.try_emplace(nodes_[rank], waited(rank)).first->second;
        least = std::min(least, waited(rank));
      }
      inside.push_back(std::ranges::max_element(of_node, {}, [](const auto& node) { return node.second; })->second);
    }
  }
  if (!inside.empty()) inside_ = median(inside);
  if (among_all.empty()) return;
  if (by_gradients) {
    hidden_ = median(hidden);
    between_ = median(among_all) + hidden_;
  } else {
    between_ = std::max(median(among_all) - inside_.value_or(0), 0.0);
  }
}

// ---- What has to be measured.

// In so many times as long as measuring took it may be done again: links change more rarely than the pace of workers.
// As rank 0 sees it.
bool AutoPolicy::is_measuring_due() const {
  constexpr int rarely = 100;
  std::array<std::int64_t, 1> due{!measured_ || Clock::now() - *measured_ > rarely * measuring_ ? 1 : 0};
  comm_.broadcast(due, 0);
  return due[0] != 0;
}

// Of the slowest rank. What takes long is not done again, and of what does not the shortest of a few counts, since a
// core that others use makes any of them longer.
double AutoPolicy::seconds_of(const std::function<void()>& exchange, int least_times) {
  constexpr double long_enough = 0.005;
  std::array<double, 1> took{};
  double shortest = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int i = 0; i < most_times && (i < least_times || spent < long_enough); ++i) {
    comm_.barrier();
    const auto started = Clock::now();
    exchange();
    took[0] = Seconds(Clock::now() - started).count();
    comm_.all_reduce(took, {.op = ReduceOp::max});
    shortest = std::min(shortest, took[0]);
    spent += took[0];
    ++measurements_;
  }
  return shortest;
}

std::span<float> AutoPolicy::scratch() {
  if (scratch_.empty()) scratch_ = values_of(tensors_, compress_ != "none");
  return scratch_;
}

// By messages to the next rank of the node, in a circle, since it may have no communicator of its own yet: of n ranks
// an average moves each value 2 (n - 1) / n times. Long ones are counted from shorter ones.
void AutoPolicy::measure_inside() {
  std::vector<Rank> own;
  std::map<int, std::size_t> sizes;
  for (Rank rank = 0; rank < comm_.world(); ++rank) {
    const int node = nodes_[static_cast<std::size_t>(rank)];
    ++sizes[node];
    if (node == nodes_[static_cast<std::size_t>(comm_.rank())]) own.push_back(rank);
  }
  const auto place = static_cast<std::size_t>(std::ranges::find(own, comm_.rank()) - own.begin());
  const auto sent = scratch().first(std::min(scratch().size(), most_inside));
  std::vector<float> arrived(sent.size());
  const double seconds = seconds_of(
      [&] {
        if (own.size() == 1) return;
        auto receiving = comm_.start_recv(arrived, own[(place + own.size() - 1) % own.size()], inside_tag);
        comm_.start_send(sent, own[(place + 1) % own.size()], inside_tag).wait();
        receiving.wait();
      },
      most_times);
  const auto largest =
      static_cast<double>(std::ranges::max_element(sizes, {}, [](const auto& each) { return each.second; })->second);
  inside_ = seconds * 2 * (largest - 1) / largest * static_cast<double>(scratch().size()) /
            static_cast<double>(std::max<std::size_t>(sent.size(), 1));
}

void AutoPolicy::measure_between() {
  const auto average = teams_.exchange_of_everybody(compress_);
  between_ = seconds_of([&] { average->start({.values = scratch(), .tensors = tensors_})->wait(); });
}

ParameterServer& AutoPolicy::server() {
  if (!server_) {
    held_.assign(scratch().begin(), scratch().end());
    server_ = std::make_unique<ParameterServer>(comm_, ServerRule{}, held_, 0,
                                                ParameterServerOptions{.compress = compress_, .tensors = tensors_});
  }
  return *server_;
}

void AutoPolicy::measure_push() {
  ParameterServer& servers = server();
  push_ = seconds_of([&] {
    if (comm_.rank() == 0) servers.exchange(scratch(), {}, held_);
  });
}

void AutoPolicy::measure_served() {
  ParameterServer& servers = server();
  served_ = seconds_of([&] { servers.exchange(scratch(), {}, held_); }) / static_cast<double>(comm_.world());
}

// The next thing that it hangs on: what takes least time first, since that may already tell.
void AutoPolicy::measure_for(const PolicyForecast& contender) {
  const bool pushes = make_sync_policy(contender.sync, {})->server().has_value();
  if (!pushes || (contender.sync == "group" && push_ && served_)) return measure_inside();
  return push_ ? measure_served() : measure_push();
}

// ---- The choice.

PolicySituation AutoPolicy::situation(double steps_left) const {
  PolicySituation now{.speeds = speeds(), .nodes = nodes_, .samples = samples_};
  const auto world = static_cast<double>(paces_.size());
  double late = 0;  // steps, and their times
  double times = 0;
  now.late_of = 0;
  for (const auto& each : paces_) {
    now.late_of += each.steps;
    late += each.late_share;
    times += each.late_share * each.late_factor;
  }
  now.late_share = late / world;
  if (late > 0) now.late_factor = times / late;
  now.inside_seconds = inside_.value_or(0);
  now.between_seconds = between_.value_or(0);
  now.hidden_seconds = hidden_;
  now.push_seconds = push_.value_or(least_of_push * now.between_seconds);
  now.served_seconds = served_.value_or(least_of_push * now.between_seconds / world);
  now.takes_servers = takes_servers_;
  now.measured = {.inside = inside_.has_value(), .push = push_.has_value(), .served = served_.has_value()};
  now.steps_left = steps_left;
  if (knows_little_) now.doubt = doubt_of_few;
  now.change_seconds = 2 * now.between_seconds + seconds_to_form;  // about one exchange of all parameters each
  return now;
}

PolicyChoice AutoPolicy::choose(const PolicyChoice& current, double steps_left) {
  const auto began = Clock::now();
  const auto before = measurements_;
  const bool serving = is_serving(current);
  const bool due = is_measuring_due();
  // What has been measured once may have been wrong: a core that others use keeps any message waiting.
  if (due) inside_.reset();
  learn(current);
  if (comm_.world() > 1 && (!between_ || (serving && due))) measure_between();
  if (serving) {  // those servers tell all that is known of any
    push_ = push_.value_or(0);
    served_ = served_.value_or(0);
  } else if (due) {
    push_.reset();
    served_.reset();
  }
  PolicySituation now = situation(steps_left);
  while (const auto contender = worth_measuring(now, current)) {
    measure_for(*contender);
    now = situation(steps_left);
  }
  if (server_) {
    server_->leave();
    server_.reset();
    comm_.barrier();  // all are gone before anybody asks others
  }
  if (measurements_ > before) {
    measured_ = Clock::now();
    measuring_ = *measured_ - began;
    scratch_ = {};
    held_ = {};
  }
  return choose_policy(now, current);
}

}  // namespace ranvier::trainer
