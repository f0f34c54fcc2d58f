// How a worker meets the others, through torch's store where that is where they meet.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include "launch.h"
#include "ranvier/communicator.h"

namespace ranvier::train {

// Throws what each of `world` workers that this host is to start would, one after the other, once they cannot meet.
void check_meeting(const CommunicatorOptions&, Rank world);

// `check` is called now and then while others are waited for; what it throws, an Error, ends that.
std::unique_ptr<Communicator> join(const cli::WorldPlace&, CommunicatorOptions,
                                   const std::function<void()>& check = {});
// Instead of joining: the others, who would wait for this worker, end and know why. Waits for those that are late, as
// they would for it.
void decline(const cli::WorldPlace&, const std::exception& why, std::chrono::milliseconds limit);

}  // namespace ranvier::train
