#include "replica/parameter_average.h"

#include <algorithm>
#include <array>

#include "base/parts.h"

namespace ranvier::replica {

ParameterAverage::ParameterAverage(Team* leaders, Team* inside, const Options& options,
                                   std::unique_ptr<Exchange> exchange)
    : leaders_(leaders), inside_(inside), tensors_(options.tensors) {
  if (leaders_ == nullptr) return;
  exchange_ = exchange ? std::move(exchange) : make_exchange(options.compress, leaders_->comm());
  plain_ = dense_exchange(leaders_->comm());
  if (!options.wants_change && options.compress == "none") return;
  anchor_.resize(options.count);
  change_.resize(options.count);
  if (options.outer) momentum_.resize(options.count);
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

void ParameterAverage::close(std::span<float> parameters, double weight) {
  if (leaders_ != nullptr && leaders_->size() > 1) average_plainly(parameters, weight);
  tell(parameters);
}

void ParameterAverage::average_plainly(std::span<float> parameters, double weight) {
  if (weight != 1)
    for (float& each : parameters) each *= static_cast<float>(weight);
  plain_->start({.values = parameters, .tensors = tensors_})->wait();
}

void ParameterAverage::tell(std::span<float> parameters) {
  if (inside_ != nullptr && inside_->size() > 1) inside_->comm().broadcast(parameters, 0);
}

double ParameterAverage::average_change(std::span<float> parameters, const OuterStep& outer, double weight) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    change_[i] = static_cast<float>(weight) * (anchor_[i] - parameters[i]);
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
  return (anchor_.size() + change_.size() + momentum_.size()) * sizeof(float) +
         (exchange_ ? exchange_->state_bytes() : 0);
}

void ParameterAverage::save(std::vector<std::byte>& all) {
  append_part(all, std::as_bytes(std::span(anchor_)));
  append_part(all, std::as_bytes(std::span(momentum_)));
  append_part(all, exchange_ && !change_.empty() ? exchange_->save({.values = change_, .tensors = tensors_})
                                                 : std::vector<std::byte>{});
}

void ParameterAverage::restore(ConstBytes& all) {
  take_values(all, std::span(anchor_));
  take_values(all, std::span(momentum_));
  if (const ConstBytes kept = take_part(all); !kept.empty() && exchange_)
    exchange_->restore({.values = change_, .tensors = tensors_}, kept);
}

}  // namespace ranvier::replica
