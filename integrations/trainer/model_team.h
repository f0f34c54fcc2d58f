// The workers of one replica, each of which holds a part of the model, and the replicas beside it.
//
// Part p of replica r is on rank r * parts + p: parts talk most, and neighbouring ranks are those nearest to each
// other.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "integrations/trainer/division.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"

namespace ranvier::trainer {

class StepRecorder;

class ModelTeam {
 public:
  // All ranks call, with the same division. `world` outlives this. Throws Error{mismatch} for different ones.
  ModelTeam(Communicator& world, const Division& division);

  bool is_whole() const { return parts_ == nullptr; }
  Division::Way way() const { return division_.way; }
  Rank part() const { return is_whole() ? 0 : parts_->rank(); }
  Rank parts() const { return division_.parts; }
  Communicator& world() { return world_; }
  // Those that hold this model together; not where a worker holds all.
  Communicator& members() { return *parts_; }
  // Those that hold the same part: what data-parallel training goes on among.
  Communicator& replicas() { return replicas_ ? *replicas_ : world_; }

  // Megatron-LM's f and g, around matrices that are cut, first by outputs, then by inputs: what goes in is everybody's,
  // and its gradient the sum of all parts'; what comes out is the sum of all parts', in place of this one's. Shoeybi et
  // al., arXiv:1909.08053, 2019.
  at::Tensor enter(const at::Tensor& x);
  at::Tensor leave(const at::Tensor& partial);

  // f32, to a neighbouring stage. What was sent is under way until finish_sends().
  void send(const at::Tensor& values, Rank to);
  at::Tensor receive(at::IntArrayRef sizes, Rank from);
  void finish_sends();

  // What the last part has becomes every part's.
  void share(std::span<double> values);
  // The first part's values become every part's. Averages by codecs, and sums in another order, leave other bits in
  // what all of them hold.
  void align(std::span<const at::Tensor> common);
  // Throws Error{mismatch} where replicas of one part share nodes that those of another do not. `nodes`: by replica, of
  // this part.
  void require_same_nodes(std::span<const int> nodes);
  // Throws Error{mismatch} where parts hold other values.
  void require_aligned(std::span<const at::Tensor> common);
  // How many parameters the whole model has, of which this part holds `own`, and all hold `common`.
  std::size_t parameters(std::size_t own, std::span<const at::Tensor> common);
  // Told of what parts send each other for a step; null: nobody.
  void record(StepRecorder* recorder) { recorder_ = recorder; }
  // One number of all parts': of a whole model `own`.
  std::uint64_t fold(std::uint64_t own);

  // Since the start, for other parts.
  std::chrono::nanoseconds waited() const { return waited_; }
  std::uint64_t bytes_sent() const { return is_whole() ? 0 : parts_->traffic().bytes_sent; }

  // What a group has failed with, as all ranks are told it: those of other groups have heard of it in the world.
  Error in_words_of_all(const Error& problem);
  // As Communicator::abort does: everybody is told, whatever they wait in.
  void abort(const std::string& reason);

 private:
  void sum(const at::Tensor& values);
  void tell(Collective, const at::Tensor& values) const;

  Communicator& world_;
  const Division division_;
  std::vector<std::pair<at::Tensor, Work>> sending_;  // outlives parts_, which sends from it
  std::unique_ptr<Communicator> parts_;               // null where a worker holds all
  std::unique_ptr<Communicator> replicas_;            // null where that is everybody
  std::array<std::byte, 1> nothing_{};                // for a message that never comes
  std::chrono::nanoseconds waited_{};
  StepRecorder* recorder_ = nullptr;
};

}  // namespace ranvier::trainer
