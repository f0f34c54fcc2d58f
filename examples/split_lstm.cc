// An LSTM layer (Hochreiter and Schmidhuber, Neural Computation 1997) whose hidden units are split over workers, trained
// by truncated backpropagation through time. Each unit's gates look at all hidden units of the step before, so that
// workers talk to everybody at every time step: an all_gather of hidden states on the way forward, a reduce_scatter of
// their gradients on the way back. Where a convolution split by rows needs two rows of its neighbours (split_convolution),
// this one waits for the latency of the network twice a time step.
//
//   split_lstm WORKERS [UNITS]
//
// starts so many processes on this machine and compares with the unsplit layer. On the way forward each value is computed
// from the same numbers in the same order: the first hidden states are equal bit for bit. Gradients are summed over
// workers, in another order than by one of them: weights are equal to rounding. Exit code: 0 where that holds.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "workers.h"

namespace {

using examples::number;
using ranvier::Collective;
using ranvier::Communicator;
using ranvier::Rank;

constexpr std::size_t batch = 16, inputs = 24, time_steps = 20, updates = 8;
constexpr float learning_rate = 4;
constexpr double most_difference = 1e-5;  // of weights, relative, after all updates

// Numbers of units at one time step: [unit][sample], so that units that follow each other lie in one piece.
using Values = std::vector<float>;

// How what a worker knows of its own units reaches all, and what all know of its units reaches it.
struct Exchange {
  std::function<void(const Values& own, Values& all)> gather;
  std::function<void(const Values& partial, Values& own)> reduce;
};

// What the layer is fed with and is to say, the same for all workers: a unit is to follow one input with one step's delay.
float input(std::size_t step, std::size_t i, std::size_t sample) {
  return number(0, (step * inputs + i) * batch + sample) > 0 ? 1.0f : -1.0f;
}
float target(std::size_t step, std::size_t unit, std::size_t sample) {
  return step == 0 ? 0.0f : 0.5f * input(step - 1, unit % inputs, sample);
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// Units `first` up to `end` of a layer of `units`.
class Layer {
 public:
  Layer(std::size_t units, std::size_t first, std::size_t end)
      : units_(units), first_(first), own_(end - first), row_(inputs + units + 1), weights_(own_ * gates * row_) {
    for (std::size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = number(1, first_ * gates * row_ + i) / std::sqrt(static_cast<float>(row_));
  }

  // Goes through all time steps from a state of zeros.
  void forward(const Exchange& exchange) {
    moments_.assign(time_steps + 1, Moment(own_, units_));
    for (std::size_t step = 1; step <= time_steps; ++step) {
      const Moment& before = moments_[step - 1];
      Moment& now = moments_[step];
      Values hidden(own_ * batch);
      for (std::size_t i = 0; i < own_ * batch; ++i) {
        const auto gate = [&](std::size_t g) -> float& { return now.gates[g * own_ * batch + i]; };
        for (std::size_t g = 0; g < gates; ++g) gate(g) = look(i / batch, g, i % batch, step - 1, before.hidden);
        for (const std::size_t g : {in, forget, out}) gate(g) = sigmoid(gate(g));
        gate(candidate) = std::tanh(gate(candidate));
        now.cells[i] = gate(forget) * before.cells[i] + gate(in) * gate(candidate);
        hidden[i] = gate(out) * std::tanh(now.cells[i]);
      }
      exchange.gather(hidden, now.hidden);
    }
  }

  // This worker's part of the mean squared error.
  double loss() const {
    double sum = 0;
    for (std::size_t step = 1; step <= time_steps; ++step)
      for (std::size_t i = 0; i < own_ * batch; ++i) sum += std::pow(error(step, i), 2);
    return sum / static_cast<double>(time_steps * units_ * batch);
  }

  // Takes a step of gradient descent: back through the time steps of the last forward().
  void learn(const Exchange& exchange) {
    std::vector<float> gradient(weights_.size());
    Values of_hidden(own_ * batch), of_cells(own_ * batch);  // gradients that come from the step behind
    for (std::size_t step = time_steps; step > 0; --step) {
      const Values of_gates = back_to_gates(step, of_hidden, of_cells);
      Values of_all(units_ * batch);  // this worker's part of the gradients of the step before
      back_to_weights(step, of_gates, gradient, of_all);
      exchange.reduce(of_all, of_hidden);
    }
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= learning_rate * gradient[i];
  }

  const std::vector<float>& weights() const { return weights_; }
  const Values& last_hidden() const { return moments_.back().hidden; }
  // Weights of one unit.
  static std::size_t weights_of_unit(std::size_t units) { return gates * (inputs + units + 1); }

 private:
  enum Gate : std::size_t { in, forget, out, candidate };
  static constexpr std::size_t gates = 4;

  struct Moment {
    Moment(std::size_t own, std::size_t units) : gates(4 * own * batch), cells(own * batch), hidden(units * batch) {}
    Values gates;  // [gate][own unit][sample]
    Values cells;
    Values hidden;  // of all units
  };

  const float* weights_of(std::size_t unit, std::size_t gate) const { return &weights_[(unit * gates + gate) * row_]; }

  // What a gate is fed with: the input, all hidden units, and a bias.
  float look(std::size_t unit, std::size_t gate, std::size_t sample, std::size_t step, const Values& hidden) const {
    const float* weight = weights_of(unit, gate);
    float sum = weight[inputs + units_];
    for (std::size_t i = 0; i < inputs; ++i) sum += weight[i] * input(step, i, sample);
    for (std::size_t i = 0; i < units_; ++i) sum += weight[inputs + i] * hidden[i * batch + sample];
    return sum;
  }

  float error(std::size_t step, std::size_t i) const {
    return moments_[step].hidden[first_ * batch + i] - target(step - 1, first_ + i / batch, i % batch);
  }

  Values back_to_gates(std::size_t step, const Values& of_hidden, Values& of_cells) const {
    const Moment &now = moments_[step], &before = moments_[step - 1];
    const float share = 2 / static_cast<float>(time_steps * units_ * batch);
    Values result(gates * own_ * batch);
    for (std::size_t i = 0; i < own_ * batch; ++i) {
      const auto gate = [&](std::size_t g) { return now.gates[g * own_ * batch + i]; };
      const auto of_gate = [&](std::size_t g) -> float& { return result[g * own_ * batch + i]; };
      const float of_output = share * error(step, i) + of_hidden[i], shown = std::tanh(now.cells[i]);
      const float of_cell = of_cells[i] + of_output * gate(out) * (1 - shown * shown);
      of_gate(out) = of_output * shown * gate(out) * (1 - gate(out));
      of_gate(in) = of_cell * gate(candidate) * gate(in) * (1 - gate(in));
      of_gate(forget) = of_cell * before.cells[i] * gate(forget) * (1 - gate(forget));
      of_gate(candidate) = of_cell * gate(in) * (1 - gate(candidate) * gate(candidate));
      of_cells[i] = of_cell * gate(forget);
    }
    return result;
  }

  void back_to_weights(std::size_t step, const Values& of_gates, std::vector<float>& gradient, Values& of_all) const {
    const Values& hidden = moments_[step - 1].hidden;
    for (std::size_t unit = 0; unit < own_; ++unit)
      for (std::size_t g = 0; g < gates; ++g) {
        const float* weight = weights_of(unit, g);
        float* to = &gradient[(unit * gates + g) * row_];
        for (std::size_t sample = 0; sample < batch; ++sample) {
          const float of_gate = of_gates[(g * own_ + unit) * batch + sample];
          for (std::size_t i = 0; i < inputs; ++i) to[i] += of_gate * input(step - 1, i, sample);
          for (std::size_t i = 0; i < units_; ++i) {
            to[inputs + i] += of_gate * hidden[i * batch + sample];
            of_all[i * batch + sample] += of_gate * weight[inputs + i];
          }
          to[inputs + units_] += of_gate;
        }
      }
  }

  std::size_t units_, first_, own_, row_;
  std::vector<float> weights_;  // [own unit][gate][inputs, hidden units, bias]
  std::vector<Moment> moments_ = {};
};

struct Trained {
  Values hidden = {};  // of all units, at the end of the first pass
  std::vector<double> losses = {};
  std::vector<float> weights = {};
};

Trained train(std::size_t units, std::size_t first, std::size_t end, const Exchange& exchange) {
  Layer layer(units, first, end);
  Trained result;
  for (std::size_t update = 0; update < updates; ++update) {
    layer.forward(exchange);
    if (update == 0) result.hidden = layer.last_hidden();
    result.losses.push_back(layer.loss());
    layer.learn(exchange);
  }
  result.weights = layer.weights();
  return result;
}

double relative_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(found[i] - expected[i], 2);
    whole += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / whole);
}

// Whether `split`, with all weights and whole losses, is what one worker finds by itself.
bool equals_unsplit(std::size_t units, const Trained& split) {
  const auto alone = [](const Values& from, Values& to) { to = from; };
  const Trained expected = train(units, 0, units, {.gather = alone, .reduce = alone});
  const bool same_states = std::memcmp(split.hidden.data(), expected.hidden.data(), units * batch * sizeof(float)) == 0;
  const double difference = relative_difference(split.weights, expected.weights);
  std::printf("loss: %.4f before, %.4f after %zu updates; unsplit %.4f and %.4f\n", split.losses.front(),
              split.losses.back(), updates - 1, expected.losses.front(), expected.losses.back());
  std::printf("hidden states of the first pass: %s\n",
              same_states ? "equal to the unsplit ones, bit for bit" : "DIFFERENT from the unsplit ones");
  std::printf("weights after training: %s by %.1e of their size\n", difference <= most_difference ? "differ" : "DIFFER",
              difference);
  return same_states && difference <= most_difference && split.losses.back() < split.losses.front();
}

bool work(Communicator& comm, std::size_t units) {
  const Rank rank = comm.rank(), workers = comm.world();
  const auto first_unit = [&](Rank of) {
    return units * static_cast<std::size_t>(of) / static_cast<std::size_t>(workers);
  };
  const auto parts = [&](std::size_t of_a_unit) {
    std::vector<std::size_t> result;
    for (Rank each = 0; each < workers; ++each) result.push_back((first_unit(each + 1) - first_unit(each)) * of_a_unit);
    return result;
  };

  const std::vector<std::size_t> values = parts(batch);
  const Exchange exchange{
      .gather =
          [&](const Values& own, Values& all) {
            comm.run({.collective = Collective::all_gather, .input = own, .output = all, .output_splits = values});
          },
      .reduce =
          [&](const Values& partial, Values& own) {
            comm.run(
                {.collective = Collective::reduce_scatter, .input = partial, .output = own, .input_splits = values});
          }};
  const std::uint64_t before = comm.traffic().bytes_sent;
  Trained split = train(units, first_unit(rank), first_unit(rank + 1), exchange);
  std::array<std::int64_t, 1> sent{static_cast<std::int64_t>(comm.traffic().bytes_sent - before)};

  comm.all_reduce(split.losses);
  comm.all_reduce(sent, {.op = ranvier::ReduceOp::max});
  const std::vector<std::size_t> weights = parts(Layer::weights_of_unit(units));
  std::vector<float> all_weights(rank == 0 ? units * Layer::weights_of_unit(units) : 0);
  comm.run({.collective = Collective::gather, .input = split.weights, .output = all_weights, .output_splits = weights});
  if (rank != 0) return true;

  split.weights = std::move(all_weights);
  std::printf("an LSTM of %zu units on %zu sequences of %zu steps; workers: %d\n", units, batch, time_steps, workers);
  std::printf("exchanged: %zu times in an update with everybody, %lld bytes an update from one worker at most\n",
              2 * time_steps, static_cast<long long>(sent[0]) / static_cast<long long>(updates));
  return equals_unsplit(units, split);
}

}  // namespace

int main(int argc, char** argv) {
  const long workers = argc > 1 ? examples::positive(argv[1]) : 0;
  const long units = argc > 2 ? examples::positive(argv[2]) : 64;
  if (workers == 0 || argc > 3 || units < workers || units > 4096) {
    std::fprintf(stderr, "usage: split_lstm WORKERS [UNITS]: at least one unit for each worker, and 4096 at most\n");
    return 2;
  }
  return examples::run_workers("split_lstm", static_cast<Rank>(workers), [&](Communicator& comm) {
    return work(comm, static_cast<std::size_t>(units));
  });
}
