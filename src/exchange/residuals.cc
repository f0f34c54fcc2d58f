#include "exchange/residuals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
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

// In front of the floats. What was saved before has no `sized` in its world, and ends with that.
struct Kept {
  std::uint64_t number;
  std::uint64_t step;
  std::uint64_t residuals;  // how many
  std::uint64_t velocities;
  std::uint64_t world;
  std::uint64_t values;  // of the bucket
  std::uint64_t behind;  // bytes
};
constexpr std::uint64_t sized = std::uint64_t{1} << 63;
constexpr std::size_t unsized_bytes = offsetof(Kept, values);

struct Head {
  Kept kept = {};
  std::size_t bytes = 0;
  bool is_sized() const { return bytes > unsized_bytes; }
  std::uint64_t float_bytes() const { return (kept.residuals + kept.velocities) * sizeof(float); }
};

std::optional<Head> head_of(ConstBytes bytes) {
  Head head{.bytes = unsized_bytes};
  if (bytes.size() < head.bytes) return std::nullopt;
  std::memcpy(&head.kept, bytes.data(), head.bytes);
  if ((head.kept.world & sized) == 0) return head;
  head.bytes = sizeof head.kept;
  if (bytes.size() < head.bytes) return std::nullopt;
  std::memcpy(&head.kept, bytes.data(), head.bytes);
  head.kept.world &= ~sized;
  return head;
}

Head checked_head_of(ConstBytes kept, std::uint64_t count, std::string_view spec) {
  const auto refuse = [&](std::string_view problem) {
    throw Error(ErrorKind::config,
                fmt::format("what a checkpoint kept of a bucket of {} values for '{}' {}; resume with the model "
                            "and the bucket sizes that it was saved with, and with all that was saved",
                            count, spec, problem));
  };
  const auto head = head_of(kept);
  if (!head) refuse("is cut off");
  const auto is_of_count = [&](std::uint64_t floats) { return floats == 0 || floats == count; };
  if (!is_of_count(head->kept.residuals) || !is_of_count(head->kept.velocities) ||
      (head->is_sized() && head->kept.values != count))
    refuse("is of another number of values");
  const std::size_t rest = kept.size() - head->bytes;
  if (rest < head->float_bytes() || rest % sizeof(float) != 0) refuse("is cut off");
  if (head->is_sized() && rest - head->float_bytes() != head->kept.behind)
    refuse(rest - head->float_bytes() < head->kept.behind ? "is cut off" : "is followed by something else");
  return *head;
}

}  // namespace

std::vector<std::byte> Residuals::save(const Bucket& bucket, std::uint64_t number) {
  const auto state = of(bucket);
  const Kept kept{number,
                  state->step,
                  state->residual.size(),
                  state->velocity.size(),
                  static_cast<std::uint64_t>(world_) | sized,
                  bucket.values.size(),
                  0};
  const std::array<ConstBytes, 3> parts{std::as_bytes(std::span(&kept, 1)), std::as_bytes(std::span(state->residual)),
                                        std::as_bytes(std::span(state->velocity))};
  std::vector<std::byte> bytes(parts[0].size() + parts[1].size() + parts[2].size());
  auto at = bytes.begin();
  for (const ConstBytes part : parts) at = std::ranges::copy(part, at).out;
  return bytes;
}

ConstBytes Residuals::restore(const Bucket& bucket, ConstBytes kept, std::uint64_t& number) {
  const Head head = checked_head_of(kept, bucket.values.size(), spec_);
  const auto state = of(bucket);
  state->step = head.kept.step;
  if (is_of_this_world(kept)) number = head.kept.number;
  kept = kept.subspan(head.bytes);
  for (auto [floats, to] :
       {std::pair(head.kept.residuals, &state->residual), std::pair(head.kept.velocities, &state->velocity)}) {
    if (floats > 0 && !to->empty()) std::memcpy(to->data(), kept.data(), floats * sizeof(float));
    kept = kept.subspan(floats * sizeof(float));
  }
  return kept;
}

void Residuals::check(const Bucket& bucket, ConstBytes kept) const {
  checked_head_of(kept, bucket.values.size(), spec_);
}

namespace {

void count_behind(std::span<std::byte> kept, std::uint64_t bytes) {
  const auto head = head_of(kept);
  if (!head || !head->is_sized()) return;
  const std::uint64_t behind = head->kept.behind + bytes;
  std::memcpy(kept.data() + offsetof(Kept, behind), &behind, sizeof behind);
}

}  // namespace

void Residuals::append(std::vector<std::byte>& kept, ConstBytes more) {
  kept.insert(kept.end(), more.begin(), more.end());
  count_behind(kept, more.size());
}

std::vector<std::byte> Residuals::without(ConstBytes kept, std::size_t bytes) {
  std::vector<std::byte> rest(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(bytes));
  count_behind(rest, 0 - std::uint64_t{bytes});
  return rest;
}

bool Residuals::wrote(const Bucket& bucket, ConstBytes kept) const {
  const auto head = head_of(kept);
  const std::uint64_t count = bucket.values.size();
  return head && head->kept.residuals == (parts_ > 0 ? count : 0) &&
         head->kept.velocities == (parts_ > 1 ? count : 0) && kept.size() == head->bytes + head->float_bytes();
}

void Residuals::forget(const Bucket& bucket) {
  for (const Tensor& tensor : of(bucket)->tensors) places_.erase(tensor.id);
}

std::uint64_t Residuals::number_in(ConstBytes kept) {
  const auto head = head_of(kept);
  return head ? head->kept.number : 0;
}

void Residuals::owe_nothing(std::span<std::byte> kept) {
  if (const auto head = head_of(kept)) std::ranges::fill(kept.subspan(head->bytes), std::byte{0});
}

bool Residuals::owes(ConstBytes kept) {
  const auto head = head_of(kept);
  return head && head->kept.residuals > 0;
}

bool Residuals::is_of_this_world(ConstBytes kept) const {
  const auto head = head_of(kept);
  return head && head->kept.world == static_cast<std::uint64_t>(world_);
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
  const auto head = head_of(kept);
  if (!head || head->kept.residuals == 0) return {};
  const ConstBytes floats = kept.subspan(head->bytes);
  std::vector<float> owed(std::min<std::size_t>(head->kept.residuals, floats.size() / sizeof(float)));
  std::memcpy(owed.data(), floats.data(), owed.size() * sizeof(float));
  return owed;
}

}  // namespace ranvier
