#include "integrations/trainer/run_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "integrations/trainer/sampler.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/sync.h"

namespace ranvier::trainer {

namespace {

// The shortest text that says this number and no other.
std::string exact(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

// The word before the next 0, which is taken away with it.
std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find('\0'));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

// "--lr '0.2' (rank 0: '0.1'), --optimizer 'sgd' (rank 0: 'adamw')": of another rank's values and those of rank 0, in
// the order of `terms`.
std::string differences(const Identity& terms, std::string_view theirs, std::string_view first) {
  std::string all;
  for (const auto& [name, value] : terms) {
    const std::string own(take_word(theirs)), other(take_word(first));
    if (own == other) continue;
    if (!all.empty()) all += ", ";
    // A plan's are of many lines.
    all += name == "--plan" ? "another --plan" : name + " '" + own + "' (rank 0: '" + other + "')";
  }
  return all;
}

// Whether replicas begin a codec's work at what they had agreed on, which without one nobody keeps.
bool begins_where_all_agreed(const std::string& sync) {
  if (sync == "auto") return false;
  const auto policy = make_sync_policy(sync, {});
  return (policy->averages_parameters() && !policy->averages_changes()) || policy->pushes() || policy->meets_peers();
}

std::size_t steps_of_an_epoch(const TrainSettings& settings, const Dataset& data, Rank world) {
  return steps_per_epoch(training_samples(data), settings.batch * settings.accumulate,
                         training_ranks(settings.sync, world));
}

}  // namespace

Identity identity_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  Identity identity{{"--model", settings.model},
                    {"--batch", std::to_string(settings.batch)},
                    {"--accumulate", std::to_string(settings.accumulate)},
                    {"--epochs", exact(settings.epochs)},
                    {"--lr", exact(settings.learning_rate)},
                    {"--lr-batch", exact(settings.learning_rate_batch)},
                    {"--warm-up", std::to_string(settings.warm_up)},
                    {"--optimizer", settings.optimizer},
                    {"--weight-decay", exact(settings.weight_decay)},
                    {"--sync", settings.sync},
                    {"--parallel", settings.parallel},
                    {"--place", settings.place},
                    {"--seed", std::to_string(settings.seed)},
                    {"workers", std::to_string(world)},
                    {"data of checksum", data.fingerprint}};
  if (begins_where_all_agreed(settings.sync))
    identity.emplace("--compress", settings.compress == "none" ? "none" : "a codec");
  return identity;
}

Identity terms_of(const TrainSettings& settings, const Dataset& data, Rank world) {
  Identity terms = identity_of(settings, data, world);
  terms["--compress"] = settings.compress;
  terms.insert({{"--steps", std::to_string(settings.steps)},
                {"--target-accuracy", exact(settings.target_accuracy.value_or(0))},
                {"--target-loss", exact(settings.target_loss.value_or(0))},
                {"--evaluate-every", std::to_string(settings.evaluate_every)},
                {"--bucket", std::to_string(settings.bucket_bytes)},
                {"--split", settings.split_by_speed ? "speed" : "even"},
                // Whether and by what steps are judged: only all together can change a plan.
                {"--plan", settings.tuning.text() + exact(settings.planned.step) + ' ' +
                               exact(settings.planned.waiting) + (settings.planned_unequal ? " unequal" : "")},
                {"--serve", settings.serve > 0 ? "on" : "off"},
                {"--record", settings.record ? "on" : "off"},
                {"--save", settings.save.empty() ? "off" : "on"},
                {"--resume", settings.resume.empty() ? "off" : "on"}});
  return terms;
}

void require_equal_terms(Communicator& comm, const Identity& terms) {
  std::string own;
  for (const auto& [name, value] : terms) own += value + '\0';
  std::array<std::int64_t, 1> longest{static_cast<std::int64_t>(own.size())};
  comm.all_reduce(longest, {.op = ReduceOp::max});
  own.resize(static_cast<std::size_t>(longest[0]));
  std::string all(own.size() * static_cast<std::size_t>(comm.world()), '\0');
  comm.all_gather(TypedSpan(own.data(), own.size(), DType::u8), TypedSpan(all.data(), all.size(), DType::u8));
  for (Rank rank = 1; rank < comm.world(); ++rank) {
    const auto text = [&](Rank of) {
      return std::string_view(all).substr(static_cast<std::size_t>(of) * own.size(), own.size());
    };
    if (text(rank) == text(0)) continue;
    throw Error(ErrorKind::mismatch,
                "rank " + std::to_string(rank) + " has " + differences(terms, text(rank), text(0)) +
                    "; give all ranks the same",
                rank);
  }
}

void check_optimizer(const TrainSettings& settings) {
  if (settings.optimizer != "sgd" && plan_exchange(settings.compress).momentum() > 0)
    throw Error(ErrorKind::usage, "--compress " + settings.compress +
                                      " has a momentum that takes the place of plain SGD's; leave --optimizer " +
                                      settings.optimizer + " out, or take another codec");
}

std::size_t training_ranks(const std::string& sync, Rank world) {
  const auto rule = sync == "auto" ? std::nullopt : make_sync_policy(sync, {})->server();
  return static_cast<std::size_t>(rule ? workers_of(*rule, world) : world);
}

void check_batch(const TrainSettings& settings, const Dataset& data, Rank world) {
  steps_of_an_epoch(settings, data, world);
}

std::string remark_on_warm_up(const TrainSettings& settings, const Dataset& data, Rank world) {
  const std::size_t steps =
      std::min(settings.steps, steps_of_epochs(settings, steps_of_an_epoch(settings, data, world)));
  if (settings.warm_up < steps) return {};
  return "the learning rate rises in " + std::to_string(settings.warm_up) +
         " steps (--warm-up), and never comes to its height in the " + std::to_string(steps) +
         " steps of this run; give fewer of those or more of these";
}

// OuterStep::gain() with which outer steps go too far over an inner momentum. slowmo's 1.25, and 2 of
// rate=1,momentum=0.5, cost next to nothing beside plain averages of the same period; DiLoCo's 7 cost 6 to 20 points of
// accuracy in 2 and 4 epochs of cnn and mlp.
constexpr double too_far_over_momentum = 4;

std::string remark_on_sync(const TrainSettings& settings, const Dataset& data, Rank world, bool is_one_node) {
  if (settings.sync == "auto" || world == 1) return {};
  const std::size_t each = steps_of_an_epoch(settings, data, world);
  const std::size_t all = steps_of_epochs(settings, each);
  const auto policy = make_sync_policy(
      settings.sync, {.steps_per_epoch = each, .steps = all, .world = static_cast<std::uint64_t>(world)});
  const std::size_t steps = std::min(settings.steps, all), everybody = policy->levels().size();
  if (!policy->averages_parameters() || policy->goes_at_own_pace()) return {};
  if (policy->gradient_level() == everybody) {
    if (policy->react({.point = SyncPoint::step_begins, .step = steps - 1}).empty()) return {};
    return "--sync " + settings.sync +
           " averages gradients for a share of --epochs, and --steps ends training before that is over: all of it is "
           "bsp; lower --epochs or after=";
  }
  if (policy->gradient_level() > 0 && is_one_node)
    return "all workers share one node, in which --sync " + settings.sync + " averages gradients in every step" +
           (settings.compress == "none" ? "" : " and --compress " + settings.compress + " has nothing to code") +
           ": this is bsp; say --place node=2 to try on one machine what two would do";
  const bool is_long_enough = policy->first_average() <= steps;
  const bool has_momentum = settings.optimizer == "sgd" || settings.optimizer == "lars";
  if (is_long_enough && has_momentum && policy->outer_gain() >= too_far_over_momentum)
    return "the outer steps of --sync " + settings.sync +
           " are meant over adamw, and go too far over the momentum of " + "--optimizer " + settings.optimizer +
           "; take --optimizer adamw, or local with the same period";
  if (is_long_enough) return {};
  return "the period of --sync " + settings.sync + " is longer than the " + std::to_string(steps) +
         " steps of this run: only when it ends are parameters averaged between " +
         (everybody == 1 ? "workers" : "all nodes") + "; give a shorter period or more steps";
}

std::size_t steps_of_epochs(const TrainSettings& settings, std::size_t steps_per_epoch) {
  const double steps = std::round(settings.epochs * static_cast<double>(steps_per_epoch));
  return std::max(static_cast<std::size_t>(steps), std::size_t{1});
}

LearningRate rate_of(const TrainSettings& settings, double samples, double steps) {
  LearningRate rate = settings.learning_rate_batch > 0
                          ? scaled_linearly(settings.learning_rate, samples, settings.learning_rate_batch)
                          : LearningRate{.peak = settings.learning_rate};
  rate.warm_up = static_cast<double>(settings.warm_up);
  rate.steps = steps;
  return rate;
}

}  // namespace ranvier::trainer
