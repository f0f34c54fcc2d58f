#include "integrations/trainer/recorded_step.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <sstream>
#include <utility>

namespace ranvier::trainer {
namespace {

// As numbers and names, from one rank to others.
struct Packed {
  std::vector<double> numbers = {};
  std::string names = {};  // one on each line
};

void pack(const std::vector<PartsCall>& calls, std::vector<double>& numbers) {
  numbers.push_back(static_cast<double>(calls.size()));
  for (const PartsCall& call : calls) numbers.insert(numbers.end(), {static_cast<double>(call.collective), call.bytes});
}

Packed pack(const RecordedStep& step) {
  Packed result{.numbers = {step.forward_ns, step.other_ns}};
  pack(step.in_forward, result.numbers);
  for (const RecordedTensor& tensor : step.tensors) {
    result.names += tensor.name + "\n";
    result.numbers.insert(result.numbers.end(), {tensor.bytes, tensor.forward_ns, tensor.compute_ns});
    pack(tensor.in_forward, result.numbers);
    pack(tensor.in_backward, result.numbers);
  }
  return result;
}

class Unpacking {
 public:
  explicit Unpacking(const Packed& packed) : numbers_(packed.numbers), names_(packed.names) {}

  // What all have alike stays.
  void unpack(RecordedStep& step) {
    step.forward_ns = number();
    step.other_ns = number();
    step.in_forward = calls();
    step.tensors.clear();
    for (std::string name; std::getline(names_, name);) {
      RecordedTensor tensor{.name = name, .bytes = number(), .forward_ns = number(), .compute_ns = number()};
      tensor.in_forward = calls();
      tensor.in_backward = calls();
      step.tensors.push_back(std::move(tensor));
    }
  }

 private:
  double number() { return numbers_[at_++]; }
  std::vector<PartsCall> calls() {
    std::vector<PartsCall> result(static_cast<std::size_t>(number()));
    for (PartsCall& call : result) {
      call.collective = static_cast<Collective>(number());
      call.bytes = number();
    }
    return result;
  }

  std::span<const double> numbers_;
  std::size_t at_ = 0;
  std::istringstream names_;
};

double computing_ns(const RecordedStep& step) {
  double sum = step.forward_ns;
  for (const RecordedTensor& tensor : step.tensors) sum += tensor.forward_ns + tensor.compute_ns;
  return sum;
}

}  // namespace

RecordedStep longest_stage(RecordedStep own, Communicator& members) {
  const std::array<double, 1> mine{computing_ns(own)};
  std::vector<double> all(static_cast<std::size_t>(members.world()));
  members.all_gather(mine, all);
  own.stage = static_cast<Rank>(std::ranges::max_element(all) - all.begin());
  const double longest = all[static_cast<std::size_t>(own.stage)];
  own.others = longest > 0 ? std::accumulate(all.begin(), all.end(), 0.0) / longest - 1 : 0;

  Packed packed = pack(own);
  std::array<std::int64_t, 2> sizes{static_cast<std::int64_t>(packed.numbers.size()),
                                    static_cast<std::int64_t>(packed.names.size())};
  members.broadcast(sizes, own.stage);
  packed.numbers.resize(static_cast<std::size_t>(sizes[0]));
  packed.names.resize(static_cast<std::size_t>(sizes[1]));
  members.broadcast(packed.numbers, own.stage);
  members.broadcast(std::span(reinterpret_cast<std::uint8_t*>(packed.names.data()), packed.names.size()), own.stage);
  Unpacking(packed).unpack(own);
  return own;
}

}  // namespace ranvier::trainer
