#include "ranvier/async_group.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "kernel/vectors.h"
#include "ranvier/sync.h"
#include "replica/requests.h"
#include "replica/team_pool.h"

namespace ranvier {

namespace {

Communicator* comm_of(const replica::Team* team) { return team != nullptr ? &team->comm() : nullptr; }

// What fails among the members of a group, the others learn of by the servers alone: that their pushes end, and not
// why.
template <class Body>
void among_members(ParameterServer& server, const Body& body) {
  try {
    body();
  } catch (const std::exception& why) {
    server.abort(why.what());
    throw;
  }
}

}  // namespace

std::vector<int> AsyncGroup::colors(const std::vector<int>& groups) {
  std::vector<int> colors = groups;
  for (std::size_t rank = 0; rank < groups.size(); ++rank)
    if (!trains(groups, rank) || std::ranges::count(groups, groups[rank]) == 1) colors[rank] = -1;
  return colors;
}

AsyncGroup::AsyncGroup(Communicator& comm, ParameterServer& server, const std::vector<int>& groups,
                       const std::vector<std::size_t>& shares, AsyncGroupOptions options)
    : server_(server),
      momentum_(options.momentum),
      pool_(options.pool ? std::move(options.pool) : std::make_shared<replica::TeamPool>(comm)),
      comm_(comm_of(pool_->team(colors(groups)))),
      answer_(options.answer),
      total_(std::accumulate(shares.begin(), shares.end(), std::size_t{0})) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  std::set<int> numbers;
  for (std::size_t peer = 0; peer < groups.size(); ++peer) {
    if (!trains(groups, peer)) continue;
    numbers.insert(groups[peer]);
    if (groups[peer] != groups[rank]) continue;
    if (peer == rank) place_ = members_.size();
    members_.push_back(static_cast<Rank>(peer));
    of_members_.push_back(shares[peer]);
    group_ += shares[peer];
  }
  server_.set_workers(numbers.size());
  if (numbers.size() > 1) pushes_ahead_ = answer_ == Answer::next_step ? 2 : 1;
  if (comm_ == nullptr) return;
  weight_ = static_cast<double>(of_members_[place_] * members_.size()) / static_cast<double>(group_);
  average_ = make_exchange(server.options().compress, *comm_);
  share_momentum();
}

AsyncGroup::Part AsyncGroup::begin(std::uint64_t stop_at) {
  std::array<std::int64_t, 3> start{};
  if (leads()) {
    const auto given = server_.begin(stop_at, group_);
    start = {static_cast<std::int64_t>(given.first), static_cast<std::int64_t>(given.count),
             static_cast<std::int64_t>(given.done)};
  }
  if (comm_ != nullptr) among_members(server_, [&] { comm_->broadcast(start, 0); });
  group_count_ = static_cast<std::uint64_t>(start[1]);
  if (group_count_ == 0) settle();
  const auto parts = share_alike(group_count_, of_members_);
  part_ = {.goes_on = group_count_ > 0,
           .first = std::accumulate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(place_),
                                    static_cast<std::uint64_t>(start[0])),
           .count = parts[place_],
           .done = static_cast<std::uint64_t>(start[2])};
  return part_;
}

void AsyncGroup::exchange(std::span<float> gradient, double rate, std::span<float> parameters) {
  pushes_gradients_ = true;
  average(gradient, static_cast<double>(part_.count), static_cast<double>(group_count_));
  look_ahead(gradient, Has::gradient);
  push(gradient,
       {.rate = rate,
        .share = group_ == total_ ? 1 : static_cast<double>(group_count_) / static_cast<double>(total_),
        .samples = group_count_},
       parameters);
}

AsyncGroup::Brought AsyncGroup::bring(double samples, double rate, Knows knows) {
  const bool knows_none = samples > 0 && knows == Knows::nothing;
  std::array<double, 3> sums{samples, samples * rate, knows_none ? 1.0 : 0.0};
  if (comm_ != nullptr) among_members(server_, [&] { comm_->all_reduce(sums, {.timeout = replica::longest_wait}); });
  if (sums[0] <= 0) settle();
  return {.samples = sums[0], .rate = sums[0] > 0 ? sums[1] / sums[0] : 0, .all_know = sums[0] > 0 && sums[2] == 0};
}

void AsyncGroup::exchange(std::span<float> update, double samples, const Brought& all, double share,
                          std::span<float> parameters) {
  average(update, samples, all.samples);
  look_ahead(update, Has::momentum);
  push(update, {.rate = all.rate, .share = share}, parameters);
}

void AsyncGroup::settle() {
  if (is_under_way_) finish(pulled_);
}

std::vector<float> AsyncGroup::owed(std::span<float> gradient) const {
  std::vector<float> all = owed_;
  const auto add = [&](std::span<const float> values, double factor) {
    all.resize(std::max(all.size(), values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) all[i] += static_cast<float>(factor * values[i]);
  };
  if (weight_ <= 0) return all;  // of no group, or without samples in it
  if (average_) add(owed_in(average_->save({.values = gradient, .tensors = server_.options().tensors})), 1 / weight_);
  // A push is the mean of a group's weighted gradients, and of all that momentum will make of each.
  const double once = pushes_gradients_ && !momentum_.velocity.empty() ? 1 - momentum_.factor : 1;
  if (leads()) add(server_.residual(), once * static_cast<double>(members_.size()) / weight_);
  return all;
}

std::vector<float> AsyncGroup::take_owed(std::span<float> gradient) {
  auto all = owed(gradient);
  std::ranges::fill(server_.residual(), 0.0F);
  return all;
}

void AsyncGroup::pay(std::span<float> gradient) {
  if (weight_ <= 0) return;
  if (owed_.size() == gradient.size())
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += static_cast<float>(weight_) * owed_[i];
  owed_.clear();
}

// Members that come from several groups bring several, and would each begin the next step somewhere else.
void AsyncGroup::share_momentum() {
  if (momentum_.velocity.empty() || group_ == 0) return;
  set_velocity(momentum_.velocity, static_cast<double>(of_members_[place_]) / static_cast<double>(group_));
}

void AsyncGroup::set_velocity(std::span<const float> velocity, double share) {
  for (std::size_t i = 0; i < momentum_.velocity.size(); ++i)
    momentum_.velocity[i] = velocity.empty() ? 0 : static_cast<float>(share) * velocity[i];
  if (comm_ != nullptr) among_members(server_, [&] { comm_->all_reduce(momentum_.velocity); });
}

void AsyncGroup::average(std::span<float> gradient, double samples, double of_group) {
  if (comm_ == nullptr) return pay(gradient);
  const double weight = samples * static_cast<double>(comm_->world()) / of_group;
  if (weight != 1)
    for (float& each : gradient) each *= static_cast<float>(weight);
  pay(gradient);
  among_members(server_, [&] { average_->start({.values = gradient, .tensors = server_.options().tensors})->wait(); });
}

// Becomes what is to be pushed of it.
void AsyncGroup::look_ahead(std::span<float> values, Has has) {
  double once = 0, lasting = 1;  // how often the gradient counts at once, and as part of the momentum
  for (std::size_t push = 0; push < pushes_ahead_; ++push) {
    once += lasting;
    lasting *= momentum_.factor;
  }
  const auto factor = static_cast<float>(momentum_.factor);
  for (std::size_t i = 0; i < momentum_.velocity.size(); ++i) {
    if (has == Has::momentum && values[i] == 0) continue;  // nobody has stepped it, and its momentum stays
    const float left = factor * momentum_.velocity[i];
    const float gradient = has == Has::gradient ? values[i] : values[i] - left;
    const float velocity = momentum_.velocity[i] = has == Has::gradient ? left + values[i] : values[i];
    values[i] = static_cast<float>(once) * gradient + static_cast<float>(lasting) * velocity;
  }
}

void AsyncGroup::push(std::span<const float> gradient, const ParameterServer::Push& push, std::span<float> parameters) {
  if (answer_ == Answer::now) {
    start(gradient, push, parameters);
    return finish(parameters);
  }
  if (is_under_way_)
    finish(pulled_);
  else
    pulled_.assign(parameters.begin(), parameters.end());
  std::ranges::copy(pulled_, parameters.begin());
  kernel::descend(gradient.data(), static_cast<float>(push.rate * push.share), parameters.data(), parameters.size());
  start(gradient, push, pulled_);
  is_under_way_ = true;
}

void AsyncGroup::start(std::span<const float> gradient, const ParameterServer::Push& push,
                       std::span<float> parameters) {
  using Follows = ParameterServer::Follows;
  if (leads()) server_.start_exchange(gradient, push, parameters, comm_ != nullptr ? Follows::yes : Follows::no);
}

// All of a group hold the same, so what its first rank is told changes everybody's.
void AsyncGroup::finish(std::span<float> parameters) {
  is_under_way_ = false;
  const ConstBytes told = leads() ? server_.finish_exchange() : ConstBytes{};
  if (comm_ == nullptr) return;
  if (server_.options().compress == "none") return among_members(server_, [&] { comm_->broadcast(parameters, 0); });
  told_.assign(told.begin(), told.end());
  std::array<std::int64_t, 1> length{static_cast<std::int64_t>(told_.size())};
  among_members(server_, [&] {
    comm_->broadcast(length, 0);
    told_.resize(static_cast<std::size_t>(length[0]));
    comm_->broadcast(TypedSpan(told_.data(), told_.size(), DType::u8), 0);
  });
  if (!leads()) server_.follow(told_, parameters);
}

}  // namespace ranvier
