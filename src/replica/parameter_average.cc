#include "replica/parameter_average.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "base/parts.h"

namespace ranvier::replica {

ParameterAverage::ParameterAverage(Team* leaders, Team* inside, const Options& options,
                                   std::unique_ptr<Exchange> exchange)
    : leaders_(leaders), inside_(inside), tensors_(options.tensors) {
  if (options.under_way) sent_.resize(options.count);
  if (leaders_ == nullptr) return;
  exchange_ = exchange ? std::move(exchange) : make_exchange(options.compress, leaders_->comm());
  plain_ = dense_exchange(leaders_->comm());
  const bool wants_anchor = options.wants_change || options.compress != "none";
  if (wants_anchor) anchor_.resize(options.count);
  if (wants_anchor || options.under_way) change_.resize(options.count);
  if (options.outer) momentum_.resize(options.count);
}

// Memory that an exchange still writes to must not go.
ParameterAverage::~ParameterAverage() {
  try {
    wait();
  } catch (const std::exception&) {  // an exchange that has failed writes nothing any more
  }
}

void ParameterAverage::agree_on(std::span<const float> parameters) {
  if (!anchor_.empty()) std::ranges::copy(parameters, anchor_.begin());
}

double ParameterAverage::run(std::span<float> parameters, const OuterStep& outer, double weight) {
  double spread = 0;
  const bool is_alone = leaders_ != nullptr && leaders_->size() == 1;
  if (leaders_ != nullptr && !(is_alone && outer.is_plain())) {  // alone, its average is itself, bit by bit
    if (change_.empty())
      average_plainly(parameters, weight);
    else
      spread = average_change(parameters, outer, weight);
  }
  tell(parameters);
  return spread;
}

void ParameterAverage::subtract(std::span<const float> parameters, double weight) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    change_[i] = static_cast<float>(weight) * ((anchor_.empty() ? 0 : anchor_[i]) - parameters[i]);
}

void ParameterAverage::begin(std::span<const float> parameters, double weight) {
  is_under_way_ = true;
  if (leaders_ == nullptr) return;
  std::ranges::copy(parameters, sent_.begin());
  subtract(parameters, weight);
  averaging_ = exchange_->start({.values = change_, .tensors = tensors_});
}

void ParameterAverage::wait() {
  if (const auto averaging = std::exchange(averaging_, nullptr)) averaging->wait();
}

bool ParameterAverage::finish(std::span<float> parameters) {
  if (!is_under_way_) return false;
  is_under_way_ = false;
  wait();
  for (std::size_t i = 0; leaders_ != nullptr && i < parameters.size(); ++i) {
    const float mean = (anchor_.empty() ? 0 : anchor_[i]) - change_[i];
    if (!anchor_.empty()) anchor_[i] = mean;
    sent_[i] = mean - sent_[i];
  }
  tell(sent_);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] += sent_[i];
  return true;
}

void ParameterAverage::close(std::span<float> parameters, double weight) {
  wait();
  is_under_way_ = false;
  if (leaders_ != nullptr && leaders_->size() > 1) average_plainly(parameters, weight);
  tell(parameters);
}

void ParameterAverage::average_plainly(std::span<float> parameters, double weight) {
  if (weight != 1)
    for (float& each : parameters) each *= static_cast<float>(weight);
  plain_->start({.values = parameters, .tensors = tensors_})->wait();
}

void ParameterAverage::tell(std::span<float> values) {
  if (inside_ != nullptr && inside_->size() > 1) inside_->comm().broadcast(values, 0);
}

double ParameterAverage::average_change(std::span<float> parameters, const OuterStep& outer, double weight) {
  subtract(parameters, weight);
  if (leaders_->size() > 1) exchange_->start({.values = change_, .tensors = tensors_})->wait();

  std::array<double, 2> squares{0, 0};  // how far this replica is from the average, and the average from the anchor
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double apart = anchor_[i] - parameters[i] - change_[i];
    squares[0] += apart * apart;
    squares[1] += static_cast<double>(change_[i]) * change_[i];
  }
  squares[0] *= weight;  // as it counts in the average
  if (leaders_->size() > 1) leaders_->comm().all_reduce(squares, {.op = ReduceOp::average});

  if (!outer.is_plain()) take_outer_step(outer, change_, momentum_);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = anchor_[i] - change_[i];
  return squares[1] > 0 ? squares[0] / squares[1] : 0;
}

std::size_t ParameterAverage::state_bytes() const {
  return (anchor_.size() + change_.size() + momentum_.size() + sent_.size()) * sizeof(float) +
         (exchange_ ? exchange_->state_bytes() : 0);
}

void ParameterAverage::save(std::vector<std::byte>& all) {
  wait();
  append_part(all, std::as_bytes(std::span(anchor_)));
  append_part(all, std::as_bytes(std::span(momentum_)));
  append_part(all, exchange_ && !change_.empty() ? exchange_->save({.values = change_, .tensors = tensors_})
                                                 : std::vector<std::byte>{});
  if (sent_.empty()) return;
  const std::array<std::byte, 1> under_way{std::byte{is_under_way_}};
  append_part(all, under_way);
  for (const auto& each : {std::span<const float>(sent_), std::span<const float>(change_)})
    append_part(all, is_under_way_ ? std::as_bytes(each) : ConstBytes{});
}

void ParameterAverage::restore(ConstBytes& all) {
  take_values(all, std::span(anchor_));
  take_values(all, std::span(momentum_));
  if (const ConstBytes kept = take_part(all); !kept.empty() && exchange_)
    exchange_->restore({.values = change_, .tensors = tensors_}, kept);
  if (sent_.empty()) return;
  std::array<std::byte, 1> under_way{};
  take_values(all, std::span<std::byte>(under_way));
  is_under_way_ = under_way[0] != std::byte{0};
  for (const auto& each : {std::span<float>(sent_), std::span<float>(change_)})
    take_values(all, is_under_way_ ? each : std::span<float>{});
}

}  // namespace ranvier::replica
