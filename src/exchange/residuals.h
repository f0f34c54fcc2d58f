// What encoders keep of each tensor from step to step: see CodecState.
//
// A residual is what this rank still owes the sum of all ranks' gradients, be it of its own gradients or, in the part
// of a bucket that it owns, of the sum that it has encoded. So the sum over all steps of what was applied, plus all
// ranks' residuals, is the sum of all gradients: nothing is lost when buckets are formed anew, or when other ranks own
// other parts after a change of membership.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ranvier/exchange.h"

namespace ranvier {

class Residuals {
 public:
  // `parts`: Codec::state_parts(); `spec`: what errors name; `world`: of how many ranks averages are.
  Residuals(std::size_t parts, std::string_view spec, Rank world) : parts_(parts), spec_(spec), world_(world) {}

  struct State {
    std::vector<Tensor> tensors;
    std::vector<float> residual;  // empty where the codec wants none
    std::vector<float> velocity;
    std::uint64_t step = 0;  // how often the bucket was started
  };
  // The state of a bucket, zero when its tensors are new; where they stood in other buckets before, what was kept
  // there. Throws Error{usage} for a tensor that has another size than before. Valid for as long as the caller holds
  // it.
  std::shared_ptr<State> of(const Bucket& bucket);

  // The bucket's tensors are new from now on.
  void forget(const Bucket& bucket);
  bool empty() const { return places_.empty(); }

  std::size_t bytes() const;

  // For checkpoints: `number` is the exchange's own. restore() returns what append() has put behind; a residual or
  // velocity that this codec does not want is dropped, one that was not saved stays zero. In another world `number`
  // stays as it is: ranks may have come that bring nothing, and messages are told apart by it. Throws Error{config} for
  // bytes that are of another number of values, or are not as many as they say; those of before, which do not say how
  // much is behind, may have anything there.
  std::vector<std::byte> save(const Bucket&, std::uint64_t number);
  ConstBytes restore(const Bucket&, ConstBytes kept, std::uint64_t& number);
  void check(const Bucket&, ConstBytes kept) const;  // throws as restore(), and takes nothing
  // `more` behind what save() wrote, which counts it.
  static void append(std::vector<std::byte>& kept, ConstBytes more);
  // Without the last `bytes`, which were appended.
  static std::vector<std::byte> without(ConstBytes kept, std::size_t bytes);
  // Whether it is what save() of as many parts writes of such a bucket, with nothing behind it.
  bool wrote(const Bucket&, ConstBytes kept) const;
  // What save() wrote, with nothing behind it, of zeros.
  static void owe_nothing(std::span<std::byte> kept);
  // Whether what save() of any exchange wrote begins with a residual.
  static bool owes(ConstBytes kept);
  // The exchange's own number in it, 0 where it is empty.
  static std::uint64_t number_in(ConstBytes kept);
  // Whether what save() wrote, and was restored, is of as many ranks as there are now.
  bool is_of_this_world(ConstBytes kept) const;

 private:
  struct Place {
    std::shared_ptr<State> state;
    std::size_t begin = 0;
    std::size_t size = 0;
  };

  std::shared_ptr<State> state_of(std::span<const Tensor> tensors) const;

  const std::size_t parts_;
  const std::string spec_;
  const Rank world_;
  std::unordered_map<std::uint64_t, Place> places_;  // by tensor id
};

}  // namespace ranvier
