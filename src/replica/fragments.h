// Averages of parts of the parameters, each under way while training goes on: what streaming policies ask for.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ranvier/exchange.h"
#include "ranvier/sync.h"
#include "replica/groups.h"

namespace ranvier::replica {

// 12 bytes a parameter: where replicas last agreed, how far they have come since, and the outer momentum.
class Fragments {
 public:
  // Cuts `size` parameters, which are of these tensors, at their borders into `count` parts that are as equal as those
  // allow; without tensors anywhere. `exchange` averages over `everybody`, which outlives this. Throws Error{usage}
  // where tensors are too few.
  Fragments(Team& everybody, std::unique_ptr<Exchange> exchange, const std::vector<Tensor>& tensors, std::size_t size,
            std::size_t count);
  ~Fragments();
  Fragments(const Fragments&) = delete;
  Fragments& operator=(const Fragments&) = delete;

  void agree_on(std::span<const float> parameters);
  // `weight`: 1 where all ranks have as many samples.
  void begin(std::size_t fragment, std::span<const float> parameters, double weight) {
    begin(fragment, parameters, weight, *exchange_);
  }
  // For the last average: without the codec.
  void begin_plainly(std::size_t fragment, std::span<const float> parameters, double weight) {
    begin(fragment, parameters, weight, *plain_);
  }
  // For all that are under way; finish() takes each up.
  void wait();
  // Waits for that average; x = merge x + (1 - merge) (what the outer step makes of it).
  void finish(std::size_t fragment, const OuterStep& outer, double merge, std::span<float> parameters);

  // Where that is among the parameters.
  std::span<float> of(std::size_t fragment, std::span<float> parameters) const {
    return parameters.subspan(parts_[fragment].first, parts_[fragment].size);
  }

  std::uint64_t plain_buckets() const { return exchange_->plain_buckets(); }
  std::size_t state_bytes() const;
  // Waits for what is under way, which is then kept as it arrived.
  void save(std::vector<std::byte>& all);
  void restore(ConstBytes& all);

 private:
  struct Part {
    std::size_t first = 0;
    std::size_t size = 0;
    std::vector<Tensor> tensors = {};
    std::shared_ptr<Averaging> averaging = nullptr;
    bool is_under_way = false;
  };
  std::span<float> of(const Part& part, std::vector<float>& all) {
    return std::span(all).subspan(part.first, part.size);
  }
  void begin(std::size_t fragment, std::span<const float> parameters, double weight, Exchange& exchange);
  void wait(Part& part);

  Team& everybody_;
  const std::unique_ptr<Exchange> exchange_;
  const std::unique_ptr<Exchange> plain_;
  std::vector<Part> parts_;
  std::vector<float> anchor_;
  std::vector<float> change_;
  std::vector<float> momentum_;
};

}  // namespace ranvier::replica
