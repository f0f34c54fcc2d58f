#include "exchange/owed_once.h"

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exchange/residuals.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

class OwedOnce final : public Exchange {
 public:
  OwedOnce(std::string spec, std::unique_ptr<Exchange> inner, Rank world)
      : spec_(std::move(spec)), inner_(std::move(inner)), world_(world) {}
  std::string_view spec() const override { return spec_; }
  std::uint64_t plain_buckets() const override { return inner_->plain_buckets(); }
  std::size_t state_bytes() const override {
    std::size_t bytes = inner_->state_bytes();
    for (const auto& [bucket, floats] : owed_) bytes += floats.size() * sizeof(float);
    return bytes;
  }
  double momentum() const override { return inner_->momentum(); }

  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    const auto found = owed_.find(id_of(bucket));
    if (found != owed_.end() && kernel::all_finite(bucket.values)) {  // else it may be that no step is taken by it
      kernel::add(bucket.values.data(), found->second.data(), bucket.values.data(), bucket.values.size());
      owed_.erase(found);
    }
    return inner_->start(bucket);
  }

  // What is still owed comes first, as of every exchange.
  std::vector<std::byte> save(const Bucket& bucket) override {
    std::vector<std::byte> bytes;
    if (const auto found = owed_.find(id_of(bucket)); found != owed_.end()) {
      Residuals one(1, spec_, world_);
      one.of(bucket)->residual = found->second;
      bytes = one.save(bucket, 0);
    }
    const auto kept = inner_->save(bucket);
    bytes.insert(bytes.end(), kept.begin(), kept.end());
    return bytes;
  }
  void restore(const Bucket& bucket, ConstBytes kept) override {
    if (Residuals::owes(kept)) {
      Residuals one(1, spec_, world_);
      std::uint64_t unused = 0;
      one.restore(bucket, kept, unused);
      owed_[id_of(bucket)] = std::move(one.of(bucket)->residual);
    }
    if (!kept.empty()) inner_->restore(bucket, kept);
  }

 private:
  static std::uint64_t id_of(const Bucket& bucket) {
    return bucket.tensors.empty() ? reinterpret_cast<std::uintptr_t>(bucket.values.data()) : bucket.tensors.front().id;
  }

  const std::string spec_;
  const std::unique_ptr<Exchange> inner_;
  const Rank world_;
  std::unordered_map<std::uint64_t, std::vector<float>> owed_;  // by bucket, until it is started
};

}  // namespace

std::unique_ptr<Exchange> owed_once(std::string spec, std::unique_ptr<Exchange> inner, Rank world) {
  return std::make_unique<OwedOnce>(std::move(spec), std::move(inner), world);
}

}  // namespace ranvier
