#include "bench/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ranvier::bench {
namespace {

constexpr double most_iterations = 100'000;

// One world with its own number of iterations: what fills a sample for one is endless for another.
class Subject {
 public:
  Subject(World& world, const Job& job, const Sampling& sampling) : world_(world), job_(job) {
    check(sampling.checks);
    if (refused()) return;
    if (job_.fill == Fill::varied || job_.in_place) job_.fill = steady_fill(job_);
    if (sampling.iterations)
      set_iterations(*sampling.iterations, sampling);
    else
      calibrate(sampling);
  }

  bool refused() const { return !measured_.refusal.empty(); }

  double sample() {
    const double seconds = run(job_);
    seconds_.push_back(seconds);
    return seconds;
  }

  Measured result(std::vector<double> ratios) const {
    Measured result = measured_;
    result.iterations = job_.iterations;
    result.samples = seconds_;
    if (!seconds_.empty()) result.seconds = spread_of(seconds_);
    if (!ratios.empty()) result.ratio = spread_of(std::move(ratios));
    return result;
  }

 private:
  // Every check has other values, so that a result left over from the one before is wrong.
  void check(std::uint64_t times) {
    Job job = job_;
    job.warmups = 0;
    job.iterations = 1;
    if (job.fill != Fill::alike) job.fill = Fill::varied;
    for (job.seed = 1; job.seed <= times && !refused(); ++job.seed) run(job);
  }

  void set_iterations(std::uint64_t iterations, const Sampling& sampling) {
    job_.iterations = iterations;
    job_.warmups = sampling.warmups.value_or(std::max<std::uint64_t>(iterations / 10, 1));
  }

  void calibrate(const Sampling& sampling) {
    set_iterations(1, sampling);
    double fastest = std::numeric_limits<double>::infinity();  // an operation; one slow moment must not decide
    for (int attempt = 0; attempt < 7; ++attempt) {
      fastest = std::min(fastest, std::max(run(job_), 1e-9));
      if (refused()) return;
      const auto now = static_cast<double>(job_.iterations);
      // No more than 30-fold at a time: the first operations are slower than those that follow.
      const double wanted = std::min({std::ceil(sampling.target.count() / fastest), 30 * now, most_iterations});
      if (attempt > 0 && wanted < 2 * now) return;
      set_iterations(static_cast<std::uint64_t>(wanted), sampling);
    }
  }

  double run(const Job& job) {
    const Outcome outcome = world_.run(job);
    measured_.refusal = outcome.refusal;
    if (!refused()) measured_.wrong += outcome.wrong;
    measured_.fell_back = outcome.fell_back;
    measured_.losses.due += outcome.losses.due;
    measured_.losses.missing += outcome.losses.missing;
    return outcome.seconds;
  }

  World& world_;
  Job job_;
  Measured measured_;
  std::vector<double> seconds_;
};

// Linear between the two nearest of the sorted values.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75),
          quantile(values, 0.99)};
}

Row measure(World& ours, std::span<World* const> baselines, const Job& job, const Sampling& sampling) {
  Subject own(ours, job, sampling);
  std::vector<Subject> others;
  others.reserve(baselines.size());
  for (World* world : baselines) others.emplace_back(*world, job, sampling);
  std::vector<std::vector<double>> ratios(others.size());

  const bool alone = std::all_of(others.begin(), others.end(), [](const Subject& other) { return other.refused(); });
  for (std::uint64_t sample = 0; sample < sampling.samples && !own.refused(); ++sample) {
    if (alone) own.sample();
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (others[i].refused()) continue;
      // Who goes first changes, so that a machine that only gets slower favours nobody.
      const bool first = sample % 2 == 0;
      const double before = first ? own.sample() : others[i].sample();
      const double after = first ? others[i].sample() : own.sample();
      ratios[i].push_back(first ? after / before : before / after);
    }
  }

  Row row{job, own.result({}), {}};
  for (std::size_t i = 0; i < others.size(); ++i) row.baselines.push_back(others[i].result(ratios[i]));
  return row;
}

std::vector<Measured> measure_in_turn(World& world, std::span<const Job> jobs, const Sampling& sampling) {
  std::vector<Subject> subjects;
  subjects.reserve(jobs.size());
  for (const Job& job : jobs) subjects.emplace_back(world, job, sampling);
  for (std::uint64_t sample = 0; sample < sampling.samples; ++sample)
    for (Subject& subject : subjects)
      if (!subject.refused()) subject.sample();
  std::vector<Measured> results;
  for (const Subject& subject : subjects) results.push_back(subject.result({}));
  return results;
}

}  // namespace ranvier::bench
