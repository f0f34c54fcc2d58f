#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "output.h"

namespace ranvier::train {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t bar_width = 24;
constexpr auto between_drawings = std::chrono::milliseconds(100);

}  // namespace

Progress::Progress(std::size_t samples_per_step)
    : samples_per_step_(samples_per_step), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { wipe(); }

void Progress::on_step(std::size_t step, std::size_t last_step, double loss) {
  if (!terminal_) return;
  const auto now = steady_clock::now();
  if (first_step_ == 0) {  // the first step also warms up: speed is counted from its end
    first_step_ = step;
    first_at_ = now;
  }
  if (now - drawn_at_ < between_drawings) return;
  drawn_at_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - first_at_).count();
  const double speed = seconds > 0 ? static_cast<double>((step - first_step_) * samples_per_step_) / seconds : 0;
  const std::size_t full = step * bar_width / last_step;
  cli::say(fmt::format("\r\033[K[{}{}] step {}/{}  loss {:.4f}  {:.0f} samples/s", std::string(full, '='),
                       std::string(bar_width - full, ' '), step, last_step, loss, speed));
  std::fflush(stderr);
}

void Progress::on_evaluation(const trainer::Evaluation& evaluation) {
  wipe();
  const auto& test = evaluation.test;
  std::string judged = fmt::format("test loss {:.4f}", test.loss);
  if (test.accuracy) judged = fmt::format("test accuracy {:6.2f} %", *test.accuracy * 100);
  if (test.bits_per_character) judged = fmt::format("test bits per character {:.3f}", *test.bits_per_character);
  if (test.frechet_distance) judged = fmt::format("Fréchet distance {:.4f}", *test.frechet_distance);
  const std::string loss = evaluation.loss ? fmt::format("loss {:.4f}  ", *evaluation.loss) : "";
  cli::say(fmt::format("step {:>6}  {}{}  {:.1f} s\n", evaluation.step, loss, judged, evaluation.seconds));
}

void Progress::on_change(const trainer::ChangedPlan& changed) {
  wipe();
  cli::say(fmt::format("step {:>6}  planned anew: {}\n", changed.step, changed.change.reason));
}

void Progress::on_unsaved(const std::string& problem) {
  wipe();
  cli::say(fmt::format("ranvier train: {}; training goes on, and the end of the next epoch tries again\n", problem));
}

void Progress::wipe() {
  if (!drawn_) return;
  cli::say("\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace ranvier::train
