#include "exchange/residuals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "ranvier/error.h"

namespace ranvier {
namespace {

bool are_same(std::span<const Tensor> a, std::span<const Tensor> b) {
  return std::ranges::equal(
      a, b, [](const Tensor& left, const Tensor& right) { return left.id == right.id && left.size() == right.size(); });
}

}  // namespace

// If it is of exactly these tensors, and all of them are still there: one may have been in another bucket since.
std::shared_ptr<Residuals::State> Residuals::state_of(std::span<const Tensor> tensors) const {
  const auto first = places_.find(tensors.front().id);
  if (first == places_.end() || !are_same(first->second.state->tensors, tensors)) return nullptr;
  const auto& known = first->second.state;
  const auto is_there = [&](const Tensor& each) {
    const auto place = places_.find(each.id);
    return place != places_.end() && place->second.state == known;
  };
  return std::ranges::all_of(tensors, is_there) ? known : nullptr;
}

std::shared_ptr<Residuals::State> Residuals::of(const Bucket& bucket) {
  const Tensor whole{.id = reinterpret_cast<std::uintptr_t>(bucket.values.data()), .columns = bucket.values.size()};
  const auto tensors = bucket.tensors.empty() ? std::span(&whole, 1) : bucket.tensors;
  std::size_t total = 0;
  for (const Tensor& tensor : tensors) total += tensor.size();
  if (total != bucket.values.size())
    throw Error(ErrorKind::usage, fmt::format("a bucket has {} values and its tensors have {}; list all of its tensors",
                                              bucket.values.size(), total));
  if (auto known = state_of(tensors)) return known;

  // An address that has been given to other memory since says nothing.
  if (bucket.tensors.empty()) places_.erase(whole.id);
  auto state = std::make_shared<State>();
  state->tensors.assign(tensors.begin(), tensors.end());
  if (parts_ > 0) state->residual.resize(total);
  if (parts_ > 1) state->velocity.resize(total);
  std::size_t begin = 0;
  for (const Tensor& tensor : tensors) {
    Place& place = places_[tensor.id];
    if (place.state) {
      if (place.size != tensor.size())
        throw Error(ErrorKind::usage, fmt::format("tensor {} has {} values and had {}: what '{}' holds back of it "
                                                  "belongs to that shape; make a new exchange for the new model",
                                                  tensor.id, tensor.size(), place.size, spec_));
      const State& old = *place.state;
      for (auto [from, to] : {std::pair(&old.residual, &state->residual), std::pair(&old.velocity, &state->velocity)})
        if (!to->empty())
          std::copy_n(from->begin() + static_cast<std::ptrdiff_t>(place.begin), place.size,
                      to->begin() + static_cast<std::ptrdiff_t>(begin));
      state->step = std::max(state->step, old.step);
    }
    place = {.state = state, .begin = begin, .size = tensor.size()};
    begin += tensor.size();
  }
  return state;
}

namespace {

// In front of the floats.
struct Kept {
  std::uint64_t number;
  std::uint64_t step;
  std::uint64_t residuals;  // how many
  std::uint64_t velocities;
  std::uint64_t world;
};

Kept head_of(ConstBytes kept) {
  Kept head{};
  std::memcpy(&head, kept.data(), sizeof head);
  return head;
}

}  // namespace

std::vector<std::byte> Residuals::save(const Bucket& bucket, std::uint64_t number) {
  const auto state = of(bucket);
  const Kept kept{number, state->step, state->residual.size(), state->velocity.size(),
                  static_cast<std::uint64_t>(world_)};
  const std::array<ConstBytes, 3> parts{std::as_bytes(std::span(&kept, 1)), std::as_bytes(std::span(state->residual)),
                                        std::as_bytes(std::span(state->velocity))};
  std::vector<std::byte> bytes(parts[0].size() + parts[1].size() + parts[2].size());
  auto at = bytes.begin();
  for (const ConstBytes part : parts) at = std::ranges::copy(part, at).out;
  return bytes;
}

ConstBytes Residuals::restore(const Bucket& bucket, ConstBytes kept, std::uint64_t& number) {
  const auto refuse = [&](std::string_view problem) {
    throw Error(ErrorKind::config,
                fmt::format("what a checkpoint kept of a bucket of {} values for '{}' {}; resume with the model "
                            "and the bucket sizes that it was saved with",
                            bucket.values.size(), spec_, problem));
  };
  if (kept.size() < sizeof(Kept)) refuse("is too short");
  const Kept head = head_of(kept);
  const std::uint64_t count = bucket.values.size();
  if ((head.residuals != 0 && head.residuals != count) || (head.velocities != 0 && head.velocities != count))
    refuse("is of another number of values");
  if (kept.size() - sizeof head < (head.residuals + head.velocities) * sizeof(float)) refuse("is too short");
  const auto state = of(bucket);
  state->step = head.step;
  if (is_of_this_world(kept)) number = head.number;
  kept = kept.subspan(sizeof head);
  for (auto [floats, to] :
       {std::pair(head.residuals, &state->residual), std::pair(head.velocities, &state->velocity)}) {
    if (floats > 0 && !to->empty()) std::memcpy(to->data(), kept.data(), floats * sizeof(float));
    kept = kept.subspan(floats * sizeof(float));
  }
  return kept;
}

void Residuals::forget(const Bucket& bucket) {
  for (const Tensor& tensor : of(bucket)->tensors) places_.erase(tensor.id);
}

std::uint64_t Residuals::number_in(ConstBytes kept) { return kept.size() >= sizeof(Kept) ? head_of(kept).number : 0; }

void Residuals::owe_nothing(std::span<std::byte> kept) { std::ranges::fill(kept.subspan(sizeof(Kept)), std::byte{0}); }

bool Residuals::owes(ConstBytes kept) { return kept.size() >= sizeof(Kept) && head_of(kept).residuals > 0; }

bool Residuals::is_of_this_world(ConstBytes kept) const {
  return head_of(kept).world == static_cast<std::uint64_t>(world_);
}

std::size_t Residuals::bytes() const {
  std::unordered_set<const State*> seen;
  std::size_t total = 0;
  for (const auto& [id, place] : places_)
    if (seen.insert(place.state.get()).second)
      total += (place.state->residual.size() + place.state->velocity.size()) * sizeof(float);
  return total;
}

std::vector<float> owed_in(ConstBytes kept) {
  if (!Residuals::owes(kept)) return {};
  const ConstBytes floats = kept.subspan(sizeof(Kept));
  std::vector<float> owed(std::min<std::size_t>(head_of(kept).residuals, floats.size() / sizeof(float)));
  std::memcpy(owed.data(), floats.data(), owed.size() * sizeof(float));
  return owed;
}

}  // namespace ranvier
