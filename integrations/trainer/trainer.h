// Data-parallel training: every worker computes the gradients of its own batch, buckets of them
// are averaged while backward still runs, and all take the same step. A worker may be several that hold one model
// together (division.h): then what is said of workers below is said of such replicas, but for means over the workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/models.h"
#include "integrations/trainer/plan_change.h"
#include "integrations/trainer/recorded_step.h"
#include "integrations/trainer/score.h"
#include "ranvier/communicator.h"
#include "ranvier/unequal_workers.h"

namespace ranvier::trainer {

// What --optimizer may say.
std::span<const std::string_view> optimizer_names();

struct TrainSettings {
  std::string model = "cnn";
  double epochs = 4;  // > 0: the length of the learning rate's cosine, whatever `steps` says
  std::size_t steps = std::numeric_limits<std::size_t>::max();  // stop after so many, counted from the very start
  std::optional<double> target_accuracy;                        // of the test samples: stop when it is reached, …
  std::optional<double> target_loss;                            // … or when Score::to_lower() is no more than this
  std::size_t evaluate_every = 0;                               // steps; 0: once an epoch. The last step always
  std::size_t batch = 32;                                       // samples a worker and pass
  std::size_t accumulate = 1;                                   // passes of which a step sums the gradients
  std::string optimizer = "sgd";
  double learning_rate = 0.1;      // the highest, or what is right for …
  double learning_rate_batch = 0;  // > 0: … so many samples a step: other steps scale it in proportion
  std::size_t warm_up = 0;         // steps in which the rate rises to that
  double momentum = 0.9;           // of adamw and lamb the first moment's decay
  double weight_decay = 0;
  std::uint64_t seed = 0;
  std::string compress = "none";  // spec of an Exchange
  std::string sync = "bsp";       // spec of a SyncPolicy
  std::string parallel = "none";  // how a model is divided among workers: parse_division()
  std::uint16_t serve = 0;        // > 0: a port for guests of the policy's parameter servers, on rank 0
  std::string place = {};         // "node=2": nodes of so many workers, where they are not hosts
  UnequalWorkers unequal = {};    // slowed down on purpose
  double sample_ms = 0;           // > 0: what computing a sample lasts at speed 1, made longer by sleeping
  bool split_by_speed = false;    // samples of a step in proportion to measured speed, else evenly
  // A bucket starts on its way once it holds so many. Where gradients stay in the memory of this machine and are 1 MiB
  // at most they start at the end of backward, as one bucket unless they are coded.
  std::size_t bucket_bytes = 256 << 10;
  int threads = 1;               // of this worker's arithmetic; 0: as OMP_NUM_THREADS says
  bool record = false;           // what the first steps consist of, see TrainResult::recorded
  TuningTable tuning = {};       // what the communicator's "auto" follows, of a plan
  StepSeconds planned = {};      // above 0: where steps take much longer or shorter, it is planned again
  bool planned_unequal = false;  // of unequal workers: only the mean of many steps tells
  std::filesystem::path save;    // empty: nowhere
  std::filesystem::path resume;  // empty: from the beginning
};

struct Evaluation {
  std::size_t step = 0;
  double seconds = 0;          // of training so far, evaluations left out
  std::optional<double> loss;  // of training: mean over the samples of all workers since the evaluation before, if any
  Score test = {};
};

// Of --sync auto: what was chosen behind so many steps, and by what reason.
struct PolicyDecision {
  std::size_t step = 0;
  std::string sync = {};
  bool split_by_speed = false;
  std::string reason = {};
  // The step behind which all had what it takes; none: training ended before.
  std::optional<std::size_t> in_use_from = {};
};

// The step behind which the plan was changed, into what, and what a step took until then.
struct ChangedPlan {
  std::size_t step = 0;
  PlanChange change = {};
  StepSeconds measured = {};
};

struct TrainResult {
  std::vector<Evaluation> history;
  std::size_t steps = 0;  // completed since the very start
  std::size_t steps_per_epoch = 0;
  std::size_t steps_here = 0;  // by this run, which may have been resumed; the figures below are its own
  std::uint64_t samples_here = 0;
  double seconds = 0;
  int threads = 0;                   // of this worker's arithmetic
  double bytes_sent_per_worker = 0;  // in all; mean over the workers, as are …
  double bytes_inside = 0;           // … those by what synchronizes them to workers of the same node, …
  double bytes_between = 0;          // … those to others …
  double bytes_model = 0;            // … and those between workers that hold one model together
  std::uint64_t rounds_inside = 0;   // exchanges that rank 0 took part in, by whether they left its node
  std::uint64_t rounds_between = 0;
  std::vector<std::size_t> shares;         // by rank: samples of a step, at the end
  std::vector<PolicyDecision> decisions;   // of --sync auto
  std::vector<int> groups;                 // by rank, of asynchronous policies: who pushes together (ranvier/server.h)
  double exposed_communication_share = 0;  // time from the end of backward until the averages are there, of the time of
                                           // all steps; mean over the workers
  std::vector<double> exposed_communication_by_rank;  // the same of each: who waits least is waited for
  std::uint64_t plain_buckets = 0;                    // of this worker, sent as they are since a value had no code
  LossCounts losses;                                  // of all workers' gradients, where the transport may lose some
  std::size_t codec_state_bytes = 0;                  // kept by this worker from step to step
  std::uint64_t parameter_hash = 0;                   // the same on all workers: that is checked
  std::size_t parameters = 0;
  double median_step_seconds = 0;     // mean over the workers, without the steps that were recorded
  double median_waiting_seconds = 0;  // of it, from the end of backward until the averages are there
  double mean_step_seconds = 0;       // as the median; of policies whose steps are not alike it says more
  double mean_waiting_seconds = 0;
  std::optional<RecordedStep> recorded;  // where that was asked for
  std::vector<ChangedPlan> changes;      // of the plan, in their order
  std::string unsaved;                   // why there is no checkpoint of the end, where there was to be one
  bool is_paused = false;                // it has ended where TrainEvents::is_to_pause says so, and all else is empty
};

// What a worker keeps at every step, so that those that are left can go on when others are lost, and with others that
// have nothing yet: by the same steps, of whose samples each has more or less then. What codecs, groups and outer
// optimizers hold begins anew.
struct Kept {
  std::size_t workers = 1;  // that a step's samples are counted by: those with which training began
  Rank ranks = 1;           // with which it began, those that only serve among them
  std::size_t step = 0;
  double seconds = 0;
  std::vector<float> parameters = {};
  std::vector<float> optimizer = {};
  std::vector<Evaluation> history = {};
};

// Called on rank 0 only.
struct TrainEvents {
  std::function<void(std::size_t step, std::size_t last_step, double loss)> on_step;
  std::function<void(const Evaluation&)> on_evaluation;
  std::function<void(const ChangedPlan&)> on_change;
  std::function<void(const std::string& problem)> on_unsaved = {};  // a checkpoint could not be written; it goes on
  Replan replan = {};                                               // what to do by a plan that was wrong
  std::function<bool()> is_to_pause = {};  // asked behind evaluations, where there is what to go on from
};

// All ranks call with the same settings and data. `kept`: where training goes on from, if any rank's has parameters,
// and what it has come to, whatever it throws; null: nothing is kept. Throws Error.
TrainResult train(const TrainSettings&, const Dataset&, Communicator&, const TrainEvents&, Kept* kept = nullptr);

}  // namespace ranvier::trainer
