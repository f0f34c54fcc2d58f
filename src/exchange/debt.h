// What another codec has held back before, by a checkpoint, where this one has no residual that it could be part of: it
// goes with the first gradients, and is paid once a step is taken by them. It follows tensors into other buckets.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exchange/residuals.h"

namespace ranvier {

class Debt {
 public:
  Debt(std::string spec, Rank world) : spec_(std::move(spec)), world_(world) {}

  // Adds what is owed to the bucket. Null where nothing is; else whoever takes a step by the average clears `residual`,
  // of all or of a part, before the bucket is started again.
  std::shared_ptr<Residuals::State> give(const Bucket& bucket);
  // What a checkpoint owes. Throws as Residuals::restore.
  void restore(const Bucket& bucket, ConstBytes kept);
  // As a checkpoint that owes this. `kept`: of whatever goes on beside it, which a number of messages is taken from.
  std::vector<std::byte> save(const Bucket& bucket, ConstBytes kept);
  bool is_owed(const Bucket& bucket);
  std::size_t bytes() const { return kept_ ? kept_->bytes() : 0; }

 private:
  std::shared_ptr<Residuals::State> of(const Bucket& bucket);

  const std::string spec_;
  const Rank world_;
  std::optional<Residuals> kept_;
};

}  // namespace ranvier
