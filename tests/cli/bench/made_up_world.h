// Worlds whose times and mistakes are made up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/world.h"

namespace ranvier::bench {

// The machine changes its speed as `speed` says, once per job that any world runs.
struct Machine {
  std::function<double(std::size_t job)> speed = [](std::size_t) { return 1.0; };
  std::string order = {};  // the initials of the worlds, as their samples ran
  std::size_t jobs = 0;
};

class MadeUpWorld final : public World {
 public:
  MadeUpWorld(Machine& machine, std::string name, double seconds)
      : machine_(machine), name_(std::move(name)), seconds_(seconds) {}

  std::string name() const override { return name_; }
  std::string description() const override { return "made up"; }
  Rank size() const override { return 2; }
  Outcome run(const Job& job) override {
    jobs.push_back(job);
    machine_.order += name_.front();
    Outcome outcome = always;
    outcome.seconds = seconds_ * machine_.speed(machine_.jobs++);
    return outcome;
  }

  std::vector<Job> jobs;
  Outcome always;  // what it says of every job, but for the time

 private:
  Machine& machine_;
  std::string name_;
  double seconds_;
};

}  // namespace ranvier::bench
