#include "integrations/trainer/run_checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "integrations/trainer/rank_state.h"
#include "ranvier/error.h"

namespace ranvier::trainer {
namespace {

Checkpoint load(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory) {
  Checkpoint checkpoint = load_checkpoint(file);
  check_identity(file, checkpoint, identity);
  if (checkpoint.parameters.size() != memory.parameters.size())
    throw Error(ErrorKind::config, "cannot resume from " + file.string() + ": it holds " +
                                       std::to_string(checkpoint.parameters.size()) + " parameters, this model has " +
                                       std::to_string(memory.parameters.size()));
  if (checkpoint.momentum.size() != memory.optimizer.size())
    throw Error(ErrorKind::config, "cannot resume from " + file.string() + ": it is of another --optimizer");
  std::ranges::copy(checkpoint.parameters, memory.parameters.begin());
  std::ranges::copy(checkpoint.momentum, memory.optimizer.begin());
  return checkpoint;
}

}  // namespace

Progress begin_from(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory,
                    Communicator& comm) {
  Checkpoint checkpoint;
  if (!file.empty() && comm.rank() == 0) checkpoint = load(file, identity, memory);
  std::array<double, 3> numbers{static_cast<double>(checkpoint.step), checkpoint.seconds,
                                static_cast<double>(checkpoint.tuning.size())};
  comm.broadcast(numbers, 0);
  comm.broadcast(memory.parameters, 0);
  comm.broadcast(memory.optimizer, 0);
  Progress progress{.step = static_cast<std::size_t>(numbers[0]), .seconds = numbers[1]};
  progress.tuning = std::move(checkpoint.tuning);
  progress.tuning.resize(static_cast<std::size_t>(numbers[2]));
  if (!progress.tuning.empty()) comm.broadcast(TypedSpan(progress.tuning.data(), progress.tuning.size(), DType::u8), 0);
  if (!file.empty()) progress.own = hand_out_states(comm, std::move(checkpoint.rank_state));
  return progress;
}

void save_to(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory,
             Progress progress, Communicator& comm) {
  if (file.empty()) return;
  auto states = collect_states(comm, std::move(progress.own));
  if (comm.rank() != 0) return;
  save_checkpoint(file, {.identity = identity,
                         .step = progress.step,
                         .seconds = progress.seconds,
                         .tuning = std::move(progress.tuning),
                         .parameters = {memory.parameters.begin(), memory.parameters.end()},
                         .momentum = {memory.optimizer.begin(), memory.optimizer.end()},
                         .rank_state = std::move(states)});
}

}  // namespace ranvier::trainer
