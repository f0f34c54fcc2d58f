// A file of `ranvier plan`, simulated again: with what flags change, or to look at its timeline and links.
#pragma once

#include "flags.h"
#include "ranvier/plan_file.h"
#include "simulate/options.h"

namespace ranvier::simulation {

// Gives the flags of `app` that are not on the command line what the plan says, and `options` what has no flag: the
// algorithm by size and the placement. Throws Error{usage} where --world is not the plan's.
void apply_plan(CLI::App& app, const Plan& plan, Options& options);

}  // namespace ranvier::simulation
