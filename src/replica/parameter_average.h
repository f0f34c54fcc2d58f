// Averages the parameters of one level's groups, and takes the outer step on what comes of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ranvier/exchange.h"
#include "ranvier/sync.h"
#include "replica/groups.h"

namespace ranvier::replica {

// Plainly, the average goes straight over the parameters. Where a codec or an outer step works on how far they have
// moved, the rank that speaks for its inner group keeps the point where its group last agreed: 4 bytes a parameter for
// that, 4 to subtract in and 4 for the outer momentum.
class ParameterAverage {
 public:
  struct Options {
    std::string compress = "none";
    std::vector<Tensor> tensors = {};
    bool wants_change = false;  // for an outer step or for the spread, even without a codec
    bool outer = false;
    bool under_way = false;  // averages come while training goes on: by begin() and finish()
    std::size_t count = 0;   // parameters
  };
  // `leaders`: who average; null on ranks that only hear of it. `inside`: whom to tell; null: nobody. `exchange`: by
  // what leaders average, where that is not simply the codec.
  ParameterAverage(Team* leaders, Team* inside, const Options& options, std::unique_ptr<Exchange> exchange = nullptr);
  ~ParameterAverage();
  ParameterAverage(const ParameterAverage&) = delete;
  ParameterAverage& operator=(const ParameterAverage&) = delete;

  // What replicas agree on at the moment.
  void agree_on(std::span<const float> parameters);
  // `weight`: 1 where all leaders speak for as many samples. Returns the spread, where change is kept.
  double run(std::span<float> parameters, const OuterStep& outer, double weight);
  // The same with the plain average, in two: they leave as they are now, and later move by how far the average of what
  // was sent is from that. What they have come meanwhile stays. 4 bytes a parameter more, 8 where nothing else is kept.
  void begin(std::span<const float> parameters, double weight);
  // For the average that begin() has sent; finish() takes it up.
  void wait();
  // Whether there was one.
  bool finish(std::span<float> parameters);
  // The last average: of the parameters as they are, also where there is a codec or one under way, which is dropped.
  void close(std::span<float> parameters, double weight);

  std::uint64_t plain_buckets() const { return exchange_ ? exchange_->plain_buckets() : 0; }
  std::size_t state_bytes() const;
  void save(std::vector<std::byte>& all);
  void restore(ConstBytes& all);

 private:
  void average_plainly(std::span<float> parameters, double weight);
  void tell(std::span<float> values);
  // How far they have come, weighted, into change_: from 0 where there is no anchor.
  void subtract(std::span<const float> parameters, double weight);
  double average_change(std::span<float> parameters, const OuterStep& outer, double weight);

  Team* const leaders_;
  Team* const inside_;
  const std::vector<Tensor> tensors_;
  std::unique_ptr<Exchange> exchange_;  // of change
  std::unique_ptr<Exchange> plain_;     // of parameters
  std::vector<float> anchor_;           // where replicas last agreed
  std::vector<float> change_;           // anchor - parameters, and their average
  std::vector<float> momentum_;         // of the outer step
  std::vector<float> sent_;             // of an average under way the parameters that left, then how far they move
  std::shared_ptr<Averaging> averaging_;
  bool is_under_way_ = false;
};

}  // namespace ranvier::replica
