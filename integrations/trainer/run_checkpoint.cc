#include "integrations/trainer/run_checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/parts.h"
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

// Whose memory is that of a part which rank 0 does not hold.
bool speaks_for_another_part(ModelTeam& team) { return team.part() > 0 && team.replicas().rank() == 0; }

}  // namespace

Progress begin_from(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory,
                    ModelTeam& team) {
  Communicator& world = team.world();
  Checkpoint checkpoint;
  if (!file.empty() && world.rank() == 0) checkpoint = load(file, identity, memory);
  std::array<double, 3> numbers{static_cast<double>(checkpoint.step), checkpoint.seconds,
                                static_cast<double>(checkpoint.tuning.size())};
  world.broadcast(numbers, 0);
  Progress progress{.step = static_cast<std::size_t>(numbers[0]), .seconds = numbers[1]};
  progress.tuning = std::move(checkpoint.tuning);
  progress.tuning.resize(static_cast<std::size_t>(numbers[2]));
  if (!progress.tuning.empty())
    world.broadcast(TypedSpan(progress.tuning.data(), progress.tuning.size(), DType::u8), 0);
  if (!file.empty()) {
    progress.own = hand_out_states(world, std::move(checkpoint.rank_state));
    if (speaks_for_another_part(team)) {
      ConstBytes rest = progress.own;
      take_values(rest, memory.parameters);
      take_values(rest, memory.optimizer);
      progress.own.erase(progress.own.begin(), progress.own.end() - std::ssize(rest));
    }
  }
  team.replicas().broadcast(memory.parameters, 0);
  team.replicas().broadcast(memory.optimizer, 0);
  return progress;
}

void save_to(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory,
             Progress progress, ModelTeam& team) {
  if (file.empty()) return;
  std::vector<std::byte> own;
  if (speaks_for_another_part(team)) {
    append_part(own, std::as_bytes(memory.parameters));
    append_part(own, std::as_bytes(memory.optimizer));
  }
  own.insert(own.end(), progress.own.begin(), progress.own.end());
  auto states = collect_states(team.world(), std::move(own));
  if (team.world().rank() != 0) return;
  save_checkpoint(file, {.identity = identity,
                         .step = progress.step,
                         .seconds = progress.seconds,
                         .tuning = std::move(progress.tuning),
                         .parameters = {memory.parameters.begin(), memory.parameters.end()},
                         .momentum = {memory.optimizer.begin(), memory.optimizer.end()},
                         .rank_state = std::move(states)});
}

}  // namespace ranvier::trainer
