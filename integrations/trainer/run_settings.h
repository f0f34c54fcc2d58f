// What a run's settings come to in its parts.
#pragma once

#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/learning_rate.h"
#include "integrations/trainer/trainer.h"

namespace ranvier::trainer {

// What a checkpoint of this run must have been made with.
Identity identity_of(const TrainSettings& settings, const Dataset& data, Rank world);
// That, and whatever else all ranks must have alike for a run to make sense, if not to be gone on with.
Identity terms_of(const TrainSettings& settings, const Dataset& data, Rank world);
// Throws Error{mismatch} on every rank, naming the first rank that differs from rank 0, and all settings in which it
// does.
void require_equal_terms(Communicator& comm, const Identity& terms);
// Throws Error{usage} for a codec that has momentum with an optimizer whose own it cannot take the place of.
void check_optimizer(const TrainSettings& settings);
// How many ranks take samples: all but those that only serve. Throws Error{usage} where none is left.
std::size_t training_ranks(const std::string& sync, Rank world);
// Throws Error{config} where the data does not fill one step of so many workers that hold a model each.
void check_batch(const TrainSettings& settings, const Dataset& data, Rank world);
// What to tell who gave a policy that never does what it is for in such a run, or over an optimizer that it spoils;
// else "".
std::string remark_on_sync(const TrainSettings& settings, const Dataset& data, Rank world, bool is_one_node);
// What to tell who lets the learning rate rise in all steps of the run; else "".
std::string remark_on_warm_up(const TrainSettings& settings, const Dataset& data, Rank world);
// Of the learning rate's cosine, where an epoch has so many steps: to the nearest, one at least.
std::size_t steps_of_epochs(const TrainSettings&, std::size_t steps_per_epoch);
// For so many samples a step, and so many steps in all.
LearningRate rate_of(const TrainSettings& settings, double samples, double steps);

}  // namespace ranvier::trainer
