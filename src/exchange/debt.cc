#include "exchange/debt.h"

#include <algorithm>

#include "kernel/vectors.h"

namespace ranvier {

std::shared_ptr<Residuals::State> Debt::of(const Bucket& bucket) {
  if (!kept_) return nullptr;
  auto state = kept_->of(bucket);
  if (std::ranges::any_of(state->residual, [](float each) { return each != 0; })) return state;
  kept_->forget(bucket);
  if (kept_->empty()) kept_.reset();
  return nullptr;
}

std::shared_ptr<Residuals::State> Debt::give(const Bucket& bucket) {
  auto state = of(bucket);
  if (state) kernel::add(bucket.values.data(), state->residual.data(), bucket.values.data(), bucket.values.size());
  return state;
}

void Debt::restore(const Bucket& bucket, ConstBytes kept) {
  Residuals(1, spec_, world_).check(bucket, kept);
  if (!Residuals::owes(kept)) return;
  if (!kept_) kept_.emplace(1, spec_, world_);
  std::uint64_t unused = 0;
  kept_->restore(bucket, kept, unused);
}

std::vector<std::byte> Debt::save(const Bucket& bucket, ConstBytes kept) {
  Residuals one(1, spec_, world_);
  if (const auto state = of(bucket)) one.of(bucket)->residual = state->residual;
  return one.save(bucket, Residuals::number_in(kept));
}

bool Debt::is_owed(const Bucket& bucket) { return of(bucket) != nullptr; }

}  // namespace ranvier
