// Vectors of one size that go from call to call: a model's worth of fresh memory costs more to have than to fill.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ranvier::transport {

class SpareVectors {
 public:
  // Two guests by turns, the one's values still on their way while the other's are read; of more at once the memory is
  // not kept. These stay, two models' worth, until this is gone: guests that never come at once need one.
  static constexpr std::size_t most_spare = 2;

  explicit SpareVectors(std::size_t size) : size_(size) {}

  // With what was left in it. Whoever holds it last gives it back, on any thread and also when this is gone.
  std::shared_ptr<std::vector<float>> take() {
    std::unique_ptr<std::vector<float>> vector;
    {
      const std::lock_guard lock(shelf_->mutex);
      if (!shelf_->spare.empty()) {
        vector = std::move(shelf_->spare.back());
        shelf_->spare.pop_back();
      }
    }
    if (!vector) vector = std::make_unique<std::vector<float>>(size_);
    return {vector.release(), [shelf = shelf_](std::vector<float>* used) {
              std::unique_ptr<std::vector<float>> owner(used);
              const std::lock_guard lock(shelf->mutex);
              if (shelf->spare.size() < most_spare) shelf->spare.push_back(std::move(owner));
            }};
  }

 private:
  struct Shelf {
    Shelf() { spare.reserve(most_spare); }
    std::mutex mutex;
    std::vector<std::unique_ptr<std::vector<float>>> spare;
  };

  const std::size_t size_;
  const std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace ranvier::transport
