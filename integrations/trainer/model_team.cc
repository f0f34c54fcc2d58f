#include "integrations/trainer/model_team.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "integrations/trainer/rank_state.h"
#include "integrations/trainer/step_recorder.h"

namespace ranvier::trainer {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t stage_tag = 0x7374616765;  // "stage"
constexpr std::uint64_t news_tag = 0x6e657773;     // "news": nobody sends any

std::span<float> memory_of(const at::Tensor& values) {
  return {values.data_ptr<float>(), static_cast<std::size_t>(values.numel())};
}

at::Tensor flat(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> parts;
  for (const auto& each : tensors) parts.push_back(each.detach().flatten());
  return at::cat(parts);
}

// Adds to `waited` how long it lives.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::nanoseconds& waited) : waited_(waited) {}
  ~Stopwatch() { waited_ += steady_clock::now() - began_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::chrono::nanoseconds& waited_;
  const steady_clock::time_point began_ = steady_clock::now();
};

}  // namespace

ModelTeam::ModelTeam(Communicator& world, const Division& division) : world_(world), division_(division) {
  if (division.way == Division::Way::whole) return;
  parts_ = world.split(world.rank() / division.parts);
  replicas_ = world.split(world.rank() % division.parts);
}

at::Tensor ModelTeam::enter(const at::Tensor& x) {
  if (!x.requires_grad()) return x;
  const auto entered = x.view_as(x);
  entered.register_hook([this](const at::Tensor& gradient) {
    const auto all = gradient.clone(at::MemoryFormat::Contiguous);
    sum(all);
    return all;
  });
  return entered;
}

// Beneath autograd, for which this stays the part's own result: so each part gets the gradient of the sum.
at::Tensor ModelTeam::leave(const at::Tensor& partial) {
  sum(partial);
  return partial;
}

void ModelTeam::tell(Collective collective, const at::Tensor& values) const {
  if (recorder_ != nullptr) recorder_->communicate({collective, static_cast<double>(values.nbytes())});
}

void ModelTeam::sum(const at::Tensor& values) {
  tell(Collective::all_reduce, values);
  const Stopwatch stopwatch(waited_);
  parts_->all_reduce(memory_of(values));
}

void ModelTeam::send(const at::Tensor& values, Rank to) {
  std::erase_if(sending_, [](const auto& each) { return each.second.done() && !each.second.error(); });
  const auto kept = values.detach().contiguous();
  tell(Collective::send, kept);
  sending_.emplace_back(kept, parts_->start_send(memory_of(kept), to, stage_tag));
}

at::Tensor ModelTeam::receive(at::IntArrayRef sizes, Rank from) {
  const Stopwatch stopwatch(waited_);
  const auto values = at::empty(sizes);
  // Of what goes through all stages, one way or the other, the last one only takes: what it would send is as large.
  const Rank next = 2 * part() - from;
  if (next < 0 || next >= parts()) tell(Collective::send, values);
  parts_->recv(memory_of(values), from, stage_tag);
  return values;
}

void ModelTeam::finish_sends() {
  const Stopwatch stopwatch(waited_);
  for (auto& [values, sending] : sending_) sending.wait();
  sending_.clear();
}

void ModelTeam::share(std::span<double> values) {
  if (is_whole()) return;
  const Stopwatch stopwatch(waited_);
  parts_->broadcast(values, parts() - 1);
}

void ModelTeam::align(std::span<const at::Tensor> common) {
  if (is_whole() || common.empty() || replicas().world() == 1) return;
  const Stopwatch stopwatch(waited_);
  const at::NoGradGuard no_grad;
  auto values = flat(common);
  tell(Collective::broadcast, values);
  parts_->broadcast(memory_of(values), 0);
  std::int64_t at = 0;
  for (const auto& each : common) {
    each.copy_(values.narrow(0, at, each.numel()).view_as(each));
    at += each.numel();
  }
}

void ModelTeam::require_same_nodes(std::span<const int> nodes) {
  if (is_whole()) return;
  const std::vector<std::int64_t> own(nodes.begin(), nodes.end());
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(parts()));
  parts_->all_gather(own, all);
  for (auto of_part = all.begin(); of_part != all.end(); of_part += std::ssize(own))
    if (!std::equal(all.begin(), all.begin() + std::ssize(own), of_part))
      throw Error(ErrorKind::mismatch,
                  "hosts end within replicas of --parallel, so that parts of one model would be averaged by different "
                  "nodes; start whole replicas on each host, or say --place node=N");
}

void ModelTeam::require_aligned(std::span<const at::Tensor> common) {
  if (is_whole() || common.empty()) return;
  require_equal(*parts_, hash_of(memory_of(flat(common))), "values of the layers that all parts of a model hold");
}

std::size_t ModelTeam::parameters(std::size_t own, std::span<const at::Tensor> common) {
  if (is_whole()) return own;
  std::int64_t shared = 0;
  for (const auto& each : common) shared += each.numel();
  std::array<std::int64_t, 1> divided{static_cast<std::int64_t>(own) - shared};
  parts_->all_reduce(divided);
  return static_cast<std::size_t>(divided[0] + shared);
}

std::uint64_t ModelTeam::fold(std::uint64_t own) {
  if (is_whole()) return own;
  const std::array<std::int64_t, 1> mine{static_cast<std::int64_t>(own)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(parts()));
  parts_->all_gather(mine, all);
  std::uint64_t folded = 0;
  for (const std::int64_t each : all) folded = folded * 0x100000001b3 ^ static_cast<std::uint64_t>(each);
  return folded;
}

// The same death, or the same abort, is told in the world too: any operation there fails with it.
Error ModelTeam::in_words_of_all(const Error& problem) {
  if (is_whole() || (problem.kind() != ErrorKind::peer_lost && problem.kind() != ErrorKind::aborted)) return problem;
  try {
    world_.start_recv({nothing_.data(), nothing_.size(), DType::u8}, Communicator::any_rank, news_tag)
        .wait_for(world_.options().dead_after);
  } catch (const Error& known) {
    return known.with_flight_record(problem.flight_record());
  }
  return problem;
}

void ModelTeam::abort(const std::string& reason) {
  world_.abort(reason);
  if (parts_) parts_->abort(reason);
  if (replicas_) replicas_->abort(reason);
}

}  // namespace ranvier::trainer
