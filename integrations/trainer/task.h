// What is learnt: a model together with its samples, its loss and how it is judged. The training loop knows nothing
// else of any of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/examples.h"
#include "integrations/trainer/model_team.h"
#include "integrations/trainer/pieces.h"
#include "integrations/trainer/score.h"

namespace ranvier::trainer {

// Samples whose gradients a worker computes at a time.
struct Pass {
  std::span<const std::int64_t> samples;  // of training
  double share = 1;                       // of those of the worker's step
  std::uint64_t first = 0;  // how many all workers have seen before these since training began, of which alone follows
                            // what is drawn at random
};

// Called before each of these, with the number of the pass; backward ones come in the order of the passes.
struct PassEvents {
  std::function<void(std::size_t)> forward;
  std::function<void(std::size_t)> backward;
};

class Task {
 public:
  virtual ~Task() = default;
  // Of training, and of testing.
  virtual std::size_t samples() const = 0;
  virtual std::size_t test_samples() const = 0;
  // In the order in which the forward pass uses them.
  virtual std::vector<at::Tensor> parameters() const = 0;
  // Those of them that every part of a team holds.
  virtual std::vector<at::Tensor> common_parameters() const { return {}; }
  // Adds the gradients of all passes, each as its share and times `weight`, to those of the parameters. Returns the
  // loss.
  virtual double train(std::span<const Pass> passes, double weight, const PassEvents& events) const = 0;
  // What the score is made of, added up over the test samples begin … end - 1: so many numbers.
  virtual std::size_t sums() const { return 3; }
  virtual void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const = 0;
  virtual Score score(std::span<const double> sums) const = 0;
};

// One whose whole model is here, so that a pass is a loss and its gradients.
class WholeTask : public Task {
 public:
  double train(std::span<const Pass> passes, double weight, const PassEvents& events) const final;

 protected:
  // The mean over the samples.
  virtual at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t first) const = 0;
};

// One of model_names(), with first weights from torch's generator; `data` and `team` outlive it. Throws
// Error{usage} for another name and for a model that does not learn from such data.
std::unique_ptr<Task> make_task(std::string_view model, const Dataset& data, std::uint64_t seed, ModelTeam& team);

// One file each. Of `whole` a stage of a pipeline keeps its own pieces.
std::unique_ptr<Task> classifier(Pieces model, std::unique_ptr<Examples> examples);
std::unique_ptr<Task> classifier_pipeline(const Pieces& whole, std::unique_ptr<Examples> examples, ModelTeam& team);
std::unique_ptr<Task> adversarial_task(const Images& data, std::uint64_t seed);

}  // namespace ranvier::trainer
