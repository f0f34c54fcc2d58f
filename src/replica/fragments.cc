#include "replica/fragments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/parts.h"
#include "ranvier/error.h"
#include "ranvier/synchronizer.h"

namespace ranvier {

// The border before which a tensor's middle lies is the one it belongs in front of.
std::vector<std::size_t> cut_into_fragments(std::span<const std::size_t> sizes, std::size_t count) {
  if (sizes.size() < count)
    throw Error(ErrorKind::usage,
                fmt::format("{0} tensors of parameters are averaged here, too few for fragments={1}; name at most {0}",
                            sizes.size(), count));
  const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  std::vector<std::size_t> parts(count, 0);
  std::size_t at = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t border = all * (i + 1) / count;
    const std::size_t left_for_others = count - 1 - i;
    while (next < sizes.size() && sizes.size() - next > left_for_others &&
           (parts[i] == 0 || left_for_others == 0 || at + sizes[next] / 2 < border)) {
      at += sizes[next++];
      ++parts[i];
    }
  }
  return parts;
}

namespace replica {

Fragments::Fragments(Team& everybody, std::unique_ptr<Exchange> exchange, const std::vector<Tensor>& tensors,
                     std::size_t size, std::size_t count)
    : everybody_(everybody),
      exchange_(std::move(exchange)),
      plain_(dense_exchange(everybody.comm())),
      parts_(count),
      anchor_(size),
      change_(size),
      momentum_(size) {
  const bool anywhere = tensors.empty() && size >= count;
  std::vector<std::size_t> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(tensor.size());
  const auto parts = anywhere ? std::vector<std::size_t>(count, 0) : cut_into_fragments(sizes, count);
  auto next = tensors.begin();
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Part& part = parts_[i];
    part.first = at;
    for (const auto end = next + static_cast<std::ptrdiff_t>(parts[i]); next != end; ++next) {
      part.tensors.push_back(*next);
      at += next->size();
    }
    if (anywhere) at = size * (i + 1) / count;
    part.size = at - part.first;
  }
}

// Memory that an exchange still writes to must not go.
Fragments::~Fragments() {
  for (Part& part : parts_) {
    try {
      wait(part);
    } catch (const std::exception&) {  // an exchange that has failed writes nothing any more
    }
  }
}

void Fragments::agree_on(std::span<const float> parameters) { std::ranges::copy(parameters, anchor_.begin()); }

void Fragments::begin(std::size_t fragment, std::span<const float> parameters, double weight, Exchange& exchange) {
  Part& part = parts_[fragment];
  const auto change = of(part, change_);
  for (std::size_t i = 0; i < part.size; ++i)
    change[i] = static_cast<float>(weight) * (anchor_[part.first + i] - parameters[part.first + i]);
  part.is_under_way = true;
  if (everybody_.size() > 1) part.averaging = exchange.start({.values = change, .tensors = part.tensors});
}

void Fragments::wait(Part& part) {
  if (!part.averaging) return;
  const auto averaging = std::move(part.averaging);
  part.averaging.reset();
  averaging->wait();
}

void Fragments::wait() {
  for (Part& part : parts_) wait(part);
}

void Fragments::finish(std::size_t fragment, const OuterStep& outer, double merge, std::span<float> parameters) {
  Part& part = parts_[fragment];
  wait(part);
  part.is_under_way = false;
  const auto change = of(part, change_);
  if (!outer.is_plain()) take_outer_step(outer, change, of(part, momentum_));
  const auto kept = static_cast<float>(merge);
  for (std::size_t i = 0; i < part.size; ++i) {
    float& anchor = anchor_[part.first + i];
    float& own = parameters[part.first + i];
    anchor -= change[i];
    own = kept == 0 ? anchor : kept * own + (1 - kept) * anchor;
  }
}

std::size_t Fragments::state_bytes() const {
  return (anchor_.size() + change_.size() + momentum_.size()) * sizeof(float) + exchange_->state_bytes();
}

void Fragments::save(std::vector<std::byte>& all) {
  append_part(all, std::as_bytes(std::span(anchor_)));
  append_part(all, std::as_bytes(std::span(momentum_)));
  wait();
  for (Part& part : parts_) {
    const std::array<std::byte, 1> under_way{std::byte{part.is_under_way}};
    append_part(all, under_way);
    append_part(all, part.is_under_way ? std::as_bytes(of(part, change_)) : ConstBytes{});
    append_part(all, exchange_->save({.values = of(part, change_), .tensors = part.tensors}));
  }
}

void Fragments::restore(ConstBytes& all) {
  take_values(all, std::span(anchor_));
  take_values(all, std::span(momentum_));
  for (Part& part : parts_) {
    std::array<std::byte, 1> under_way{};
    take_values(all, std::span<std::byte>(under_way));
    part.is_under_way = under_way[0] != std::byte{0};
    take_values(all, part.is_under_way ? of(part, change_) : std::span<float>{});
    if (const ConstBytes kept = take_part(all); !kept.empty())
      exchange_->restore({.values = of(part, change_), .tensors = part.tensors}, kept);
  }
}

}  // namespace replica
}  // namespace ranvier
