// One slice of a bucket as an all_gather of codes: every rank encodes all of it once and sends that to everybody, who
// add up what they decode in the order of ranks. Against scatter, reduce, gather: one round of messages instead of two,
// one encoding instead of two between a gradient and the average, and W / 2 times the bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exchange/coded_slice.h"
#include "ranvier/cost.h"

namespace ranvier {

// Which of the two is over sooner, by the model of the links: codes of a slice have `bytes`, each part of it as many as
// is its share. The same answer on all ranks.
bool all_gather_is_cheaper(const LinkModel& links, Rank world, double bytes);

class GatheredSlice final : public Phased {
 public:
  // As CodedSlice.
  GatheredSlice(Communicator& comm, std::shared_ptr<CodedTools> tools, std::span<float> values, CodecState state,
                std::uint64_t number, std::uint64_t step, std::vector<TensorPiece> pieces = {});

 private:
  bool begin() override;
  bool advance() override;
  void end() override;
  std::span<std::byte> room_of(Rank rank);
  void add_up();
  void go_plain();

  const std::shared_ptr<CodedTools> tools_;
  const std::span<float> values_;
  const CodecState state_;
  const std::uint64_t number_, step_;
  const std::vector<TensorPiece> pieces_;
  std::size_t room_ = 0;  // the most bytes of a code
  std::vector<std::byte> memory_;
  std::vector<std::size_t> bytes_;  // of the code of each rank; 0: it had none
  std::vector<float> sum_;
};

}  // namespace ranvier
