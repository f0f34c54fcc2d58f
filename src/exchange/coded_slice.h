// One slice of a bucket on its way: scatter codes of gradients, reduce, gather codes of sums; and once more with plain
// floats where a value had no code.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exchange/phased.h"
#include "exchange/pool.h"
#include "ranvier/codec.h"
#include "ranvier/communicator.h"

namespace ranvier {

// Of a bucket of values as they are coded. 4 MiB of floats: long enough that a message costs little, short enough that
// many are under way.
inline constexpr std::size_t slice_values = std::size_t{1} << 20;

// Slices and their parts begin at multiples of this where they are long enough: whole blocks of every quantizer.
inline constexpr std::size_t part_alignment = 4096;

// What all slices of an exchange share.
struct CodedTools {
  std::shared_ptr<const Codec> codec;  // of gradients
  std::shared_ptr<const Codec> sums;   // of sums; may be the same
  Pool<std::byte> codes = {};
  Pool<float> floats = {};
  std::atomic<std::uint64_t> plain = 0;
};

// A seed for the code that `rank` makes of slice `number`; those of other slices, ranks and purposes are unlike it.
std::uint64_t seed_of(std::uint64_t number, Rank rank, Rank world);

class CodedSlice final : public Phased {
 public:
  // `number` is the same for this slice on all ranks and another one for each slice; what `state` views lives as long
  // as values do. `pieces`: what they are, where the codec wants to know.
  CodedSlice(Communicator& comm, std::shared_ptr<CodedTools> tools, std::span<float> values, CodecState state,
             std::uint64_t number, std::uint64_t step, std::vector<TensorPiece> pieces = {});

 private:
  enum class Phase : std::uint64_t { scatter, gather, plain_scatter, plain_gather };
  struct Part {  // of the slice, owned by one rank
    std::size_t begin = 0;
    std::size_t size = 0;
    std::size_t code_room = 0;  // the most bytes of its code
  };
  struct Code {
    std::span<std::byte> room = {};
    std::size_t bytes = 0;  // 0: there is none, since a value was not finite
    ConstBytes view() const { return room.first(bytes); }
  };

  Part& part(Rank rank) { return parts_[static_cast<std::size_t>(rank)]; }
  std::span<float> values_of(Rank rank) { return values_.subspan(part(rank).begin, part(rank).size); }
  CodecState state_of(Rank rank);
  std::vector<TensorPiece> pieces_of(Rank rank) { return cut(pieces_, part(rank).begin, part(rank).size); }

  bool begin() override;
  bool advance() override;
  void end() override;
  void stay_alone();
  void lay_out();
  void post_receives();
  void scatter();
  void reduce();
  void gather();
  void plain_scatter();
  void plain_gather();
  void finish();
  void restore_residuals();
  void sum_gradients();
  void accumulate(std::span<float> velocity, std::span<const float> gradients) const;

  void send(ConstBytes bytes, Rank to, Phase phase);
  Work receive(Bytes room, Rank from, Phase phase);
  bool all_arrived() const;
  float sum_scale() const;

  const std::shared_ptr<CodedTools> tools_;
  const std::span<float> values_;
  const CodecState state_;
  const std::uint64_t number_, step_;
  const std::vector<TensorPiece> pieces_;
  std::vector<Part> parts_;  // by rank

  Phase phase_ = Phase::scatter;
  std::vector<std::byte> memory_;
  std::vector<float> sum_;
  std::vector<Code> sent_, received_, sums_;  // by rank: to it, from it, of its part
  std::vector<Work> later_;                   // receives of the next phase
};

// The same way without a codec: for what has no code.
std::shared_ptr<Phased> plain_slice(Communicator& comm, std::span<float> values, std::uint64_t number);

}  // namespace ranvier
