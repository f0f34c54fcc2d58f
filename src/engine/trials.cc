#include "engine/trials.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

namespace ranvier::engine {
namespace {

// Not those with a root: as short as trials are, they show how far it can run ahead of the others, or, with a barrier
// behind each batch, mostly that.
constexpr std::array by_importance{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                   Collective::all_to_all};

// From size to size: see Selection, which has what lies between.
constexpr std::size_t step = 4;

// Operations are timed in batches of about so long, of no fewer and no more than so many: the first ones after another
// algorithm's are slower. Of long ones, to which that matters less, fewer do, and of the tiny batches one.
//
// Of vectors that crowd caches it matters more: what another algorithm left there, and how far ranks that share cores
// run ahead of each other, decides the first few operations. A ring took 4 ranks on 2 cores 39 us for an all_gather of
// 256 KiB, and all others 45 to 60, but in two of three such batches it was behind some. There so many go before, and
// ranks wait for each other, so that nobody's time begins while others are in the batch before.
constexpr double tiny_batch = 50e-6, short_batch = 150e-6, long_batch = 250e-6;  // seconds
constexpr double least_in_batch = 3, least_of_long = 2;
constexpr double long_operation = 60e-6;  // seconds
constexpr std::size_t crowds_caches = 64 << 10;
constexpr int early_lead_in = 2, lead_in = 4;
constexpr double most_in_batch = 32, most_in_batch_of_two = 128;  // since of two ranks there are few contenders

// No further size after so many: what ranks do as they meet is counted in 16 bits (first_of_meeting).
constexpr int most_operations = 50'000;

// First all have two tiny batches in turn, those that are near the fastest then two short ones, and the fastest few of
// these long ones, of which the median counts: where ranks share cores, the shortest is a stroke of luck. Until then it
// is the shortest: what disturbs a batch makes it longer, and must not end anybody's chances. What the model would take
// stays in any case.
constexpr std::size_t early_batches = 2, long_batches = 5;
constexpr double within_reach = 1.6;
constexpr std::size_t in_second_round = 6;
constexpr double close = 1.3;
constexpr std::size_t finalists = 3, finalists_in_caches = 4;

// With which vectors begin here, as those of programs that care do, torch's among them: such as lie across lines cost
// some algorithms more than others.
struct alignas(64) CacheLine {
  float values[16] = {};
};

class Tryout {
 public:
  Tryout(Selection& selection, const TrialLimits& limits, const std::function<void(const Request&)>& run,
         const std::function<double()>& clock)
      : selection_(selection), world_(selection.settings().world), limits_(limits), run_(run), clock_(clock) {}

  std::vector<Trial> all() && {
    for (const Collective collective : by_importance) {
      double last = 0;
      for (std::size_t bytes = limits_.least_bytes; bytes <= limits_.most_bytes; bytes *= step) {
        const std::vector<Prediction> contenders = selection_.contenders(collective, bytes);
        if (std::max(last, contenders.front().seconds / 4) > limits_.operation) break;
        if (spent_ > limits_.seconds || operations_ > most_operations) break;
        if (contenders.size() > 1) last = measure(collective, bytes, contenders, last);
      }
    }
    return std::move(trials_);
  }

 private:
  // Who was far from the fastest at the size before is left out, for this size.
  std::vector<Prediction> without_the_slow(Collective collective, std::size_t bytes, std::vector<Prediction> contenders,
                                           const std::string& favourite) const {
    std::vector<Trial> before;
    std::ranges::copy_if(trials_, std::back_inserter(before), [&](const Trial& each) {
      return each.collective == collective && each.bytes == bytes / step;
    });
    if (before.empty()) return contenders;
    const double limit = within_reach * std::ranges::min(before, {}, &Trial::seconds).seconds;
    std::erase_if(contenders, [&](const Prediction& contender) {
      const auto found = std::ranges::find(before, contender.algorithm, &Trial::algorithm);
      return found != before.end() && found->seconds > limit && contender.algorithm != favourite;
    });
    return contenders;
  }

  // The shortest time of all. `last`: that of the size before, or 0.
  double measure(Collective collective, std::size_t bytes, const std::vector<Prediction>& contenders, double last) {
    const std::string& favourite = selection_.choice(collective, bytes);
    std::vector<Trial> all, gone;
    for (const Prediction& each : without_the_slow(collective, bytes, contenders, favourite))
      all.push_back({.collective = collective, .bytes = bytes, .algorithm = each.algorithm});
    for (const Trial& each : all) time(each, 1);  // makes its program, and the pages of its memory
    const auto shortest = [&] { return std::ranges::min(all, {}, &Trial::seconds).seconds; };
    if (last == 0) {
      shorten(all, play(all, 1, 1, early_lead_in));
      last = shortest();
      for (Trial& each : all) each.seconds = 0;
    }
    const bool is_long = last > long_operation;
    const double most = world_ == 2 ? most_in_batch_of_two : most_in_batch;
    const double least = is_long && bytes < crowds_caches ? least_of_long : least_in_batch;
    const auto in = [&](double length, double fewest) {
      return static_cast<int>(std::clamp(length / std::max(last, 1e-7), fewest, most));
    };
    shorten(all, play(all, in(tiny_batch, is_long ? 1 : least), early_batches, early_lead_in));
    give_up(all, gone, within_reach, in_second_round, favourite);
    shorten(all, play(all, in(short_batch, least), early_batches, early_lead_in));
    give_up(all, gone, close, bytes < crowds_caches ? finalists : finalists_in_caches, favourite);
    if (all.size() > 1) {
      auto seconds = play(all, in(long_batch, least), long_batches, lead_in);
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::ranges::sort(seconds[i]);
        all[i].seconds = seconds[i][long_batches / 2];
      }
    }
    // The shortest of few short batches is less than a median of long ones: who was given up is no faster than the
    // fastest of those who stayed, and stands behind them.
    const double fastest = shortest();
    for (Trial& each : gone) each.seconds = std::max(each.seconds, fastest);
    trials_.insert(trials_.end(), all.begin(), all.end());
    trials_.insert(trials_.end(), gone.begin(), gone.end());
    return fastest;
  }

  // Of each, what so many batches of so many operations took by the operation; all in turn, and of the slowest rank.
  std::vector<std::vector<double>> play(const std::vector<Trial>& all, int times, std::size_t batches, int before) {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < batches; ++i)
      for (const Trial& each : all) {
        if (each.bytes >= crowds_caches) begin_together(each, before);
        seconds.push_back(time(each, times));
      }
    share(seconds);
    std::vector<std::vector<double>> by_trial(all.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) by_trial[i % all.size()].push_back(seconds[i]);
    return by_trial;
  }

  void begin_together(const Trial& trial, int before) {
    time(trial, before);
    std::array none{0.0};
    run_({.input = none, .output = none, .op = ReduceOp::max});
    ++operations_;
  }

  static void shorten(std::vector<Trial>& all, const std::vector<std::vector<double>>& seconds) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double shortest = std::ranges::min(seconds[i]);
      if (all[i].seconds == 0 || shortest < all[i].seconds) all[i].seconds = shortest;
    }
  }

  // Those that are too slow, and all but so many of the others.
  static void give_up(std::vector<Trial>& all, std::vector<Trial>& gone, double times_the_fastest, std::size_t most,
                      const std::string& favourite) {
    std::ranges::stable_sort(all, {}, &Trial::seconds);
    const double limit = times_the_fastest * all.front().seconds;
    std::vector<Trial> stay;
    for (Trial& each : all) {
      const bool is_fast = each.seconds <= limit && stay.size() < most;
      (is_fast || each.algorithm == favourite ? stay : gone).push_back(std::move(each));
    }
    all = std::move(stay);
  }

  // Of an operation, of several one after another, as collectives come, so that no rank's lead makes one look short.
  double time(const Trial& trial, int times) {
    const Request request = request_of(trial);
    const double start = clock_();
    for (int i = 0; i < times; ++i) run_(request);
    const double seconds = clock_() - start;
    own_ += seconds;
    operations_ += times;
    return seconds / times;
  }

  // Those of the slowest rank, and how long all of it has taken so far.
  void share(std::vector<double>& seconds) {
    seconds.push_back(own_);
    run_({.input = seconds, .output = seconds, .op = ReduceOp::max});
    spent_ = seconds.back();
    seconds.pop_back();
  }

  // In place where programs mostly are, of `bytes` or of as many parts of one element as there are ranks.
  Request request_of(const Trial& trial) {
    const auto ranks = static_cast<std::size_t>(world_);
    const std::size_t part = std::max(trial.bytes / sizeof(float) / ranks, std::size_t{1});
    const std::size_t whole = trial.bytes / sizeof(float), all = part * ranks;
    const std::size_t lines = std::max(whole, all) * sizeof(float) / sizeof(CacheLine) + 1;
    input_.resize(std::max(input_.size(), lines));
    output_.resize(input_.size());
    const auto inputs = [&](std::size_t count) { return ConstTypedSpan(input_.data(), count, DType::f32); };
    const auto outputs = [&](std::size_t count) { return TypedSpan(output_.data(), count, DType::f32); };
    Request request{.collective = trial.collective, .algorithm = trial.algorithm};
    switch (trial.collective) {
      case Collective::all_reduce:
        request.output = outputs(whole);
        request.input = request.output;
        break;
      case Collective::all_gather:
        request.input = inputs(part);
        request.output = outputs(all);
        break;
      case Collective::reduce_scatter:
        request.input = inputs(all);
        request.output = outputs(part);
        break;
      default:
        request.input = inputs(all);
        request.output = outputs(all);
    }
    return request;
  }

  Selection& selection_;
  const Rank world_;
  const TrialLimits limits_;
  const std::function<void(const Request&)>& run_;
  const std::function<double()>& clock_;
  std::vector<Trial> trials_;
  std::vector<CacheLine> input_, output_;
  int operations_ = 0;
  double own_ = 0;    // seconds that this rank has spent
  double spent_ = 0;  // that the one has spent that took longest, as of the last time that they were shared
};

}  // namespace

std::vector<Trial> try_contenders(Selection& selection, const TrialLimits& limits,
                                  const std::function<void(const Request&)>& run,
                                  const std::function<double()>& clock) {
  return Tryout(selection, limits, run, clock).all();
}

}  // namespace ranvier::engine
