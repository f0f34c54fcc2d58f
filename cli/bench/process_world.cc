#include "bench/process_world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <sstream>

#include "bench/peer.h"
#include "output.h"
#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long ranks whose coordinator has left may take to exit: mpirun and Python need a while.
constexpr milliseconds time_to_leave{10'000};
constexpr milliseconds time_to_die{12'000};  // more than twice any Launch::term_to_kill: asked, asked again, killed

// Results are the coordinator's: what others print goes to stderr, and the terminal's input to nobody.
void stay_apart() {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);  // an earlier world's ranks would wait for this copy of their socket to end
}

}  // namespace

ProcessWorld::ProcessWorld(std::string name, Rank size, cli::Launch launch, milliseconds timeout)
    : name_(std::move(name)), size_(size), timeout_(timeout), listener_(listen_for_lines()), ranks_(size) {
  launch.environment.emplace_back(socket_variable, listener_.name);
  keeper_.emplace(launch, stay_apart);
}

ProcessWorld::~ProcessWorld() {
  ranks_.clear();
  // Whoever connects now, or has and was not accepted, is told to leave as the others are. Why they cannot meet they
  // may say to nobody: another has said it for them.
  std::vector<Lines> latecomers;
  const auto gone_within = [&](milliseconds limit) {
    const auto until = steady_clock::now() + limit;
    while (!has_ended() && steady_clock::now() < until)
      if (auto connection = accept_lines(listener_, milliseconds(5)))
        latecomers.emplace_back(std::move(*connection)).finish();
    return has_ended();
  };
  if (gone_within(time_to_leave)) return;
  cli::say(fmt::format("ranvier bench: the {} ranks did not exit within {} s and are stopped\n", name_,
                       time_to_leave.count() / 1000));
  keeper_->tell(SIGTERM);
  if (gone_within(time_to_die)) return;
  keeper_->tell(SIGKILL);
  gone_within(time_to_die);
}

void ProcessWorld::greet(Lines connection, Lines::Deadline until) {
  std::optional<std::string> hello;
  try {
    hello = connection.read(until);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
  }
  if (!hello) return;  // it died, as the keeper will say, or has not come in time
  // The others say the same, or that it left.
  if (const auto problem = failure_of(*hello)) throw *problem;
  std::istringstream words(*hello);
  std::string word, description;
  Rank rank = -1, world = 0;
  words >> word >> rank >> world >> std::ws;
  std::getline(words, description);
  if (word != "hello" || world != size_ || rank < 0 || rank >= size_ || ranks_[static_cast<std::size_t>(rank)])
    throw Error(ErrorKind::mismatch,
                fmt::format("a {} rank introduced itself with '{}' in a world of {}; do all its ranks come from one "
                            "build and launcher?",
                            name_, *hello, size_));
  ranks_[static_cast<std::size_t>(rank)] = std::move(connection);
  if (rank == 0) description_ = description;
}

std::vector<std::size_t> ProcessWorld::absent() const {
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!ranks_[rank]) missing.push_back(rank);
  return missing;
}

void ProcessWorld::meet(milliseconds limit, bool ranks_tell, const Patience& patience) {
  const auto in_time = steady_clock::now() + limit;
  const auto soon = [&] { return steady_clock::now() + patience.to_follow; };
  auto until = in_time + (ranks_tell ? patience.to_explain : milliseconds(0));
  for (;;) {
    const auto missing = absent();
    if (missing.empty()) return;
    // Whoever has connected before either is still heard.
    const bool ended = has_ended();
    const bool is_late = steady_clock::now() >= until;
    if (auto connection = accept_lines(listener_, milliseconds(ended || is_late ? 0 : 50))) {
      greet(std::move(*connection), std::max(until, soon()));
      const bool is_first = missing.size() == ranks_.size() && absent().size() < ranks_.size();
      if (is_first) until = std::max(in_time, soon());
    } else if (ended) {
      throw Error(ErrorKind::peer_lost,
                  fmt::format("the {} ranks ended with exit code {} before they were measured; what "
                              "they said is above",
                              name_, cli::exit_code_of_keeper(*keeper_->status())));
    } else if (is_late) {
      throw Error(ErrorKind::timeout, fmt::format("of {} {} ranks these did not come within {} s: {}; start fewer, or "
                                                  "allow more with --join-timeout",
                                                  size_, name_, limit.count() / 1000, fmt::join(missing, ", ")));
    }
  }
}

void ProcessWorld::throw_left(Rank rank) const {
  throw Error(ErrorKind::peer_lost, fmt::format("{} rank {} left in the middle of the benchmark", name_, rank), rank);
}

Reply ProcessWorld::answer_of(Rank rank, Lines::Deadline until) {
  std::optional<std::string> line;
  try {
    line = ranks_[static_cast<std::size_t>(rank)]->read(until);
  } catch (const Error&) {
    throw Error(ErrorKind::timeout,
                fmt::format("{} rank {} did not answer within {} s; does it hang, or is it only slow "
                            "(--timeout)?",
                            name_, rank, timeout_.count() / 1000),
                rank);
  }
  if (!line) throw_left(rank);
  try {
    return reply_from_line(*line);
  } catch (const Error& failure) {
    throw Error(failure.kind(), fmt::format("{} rank {} failed: {}", name_, rank, failure.what()), rank)
        .with_flight_record(failure.flight_record());
  }
}

Outcome ProcessWorld::run(const Job& job) {
  const std::string line = to_line(job);
  for (Rank rank = 0; rank < size_; ++rank) {
    try {
      ranks_[static_cast<std::size_t>(rank)]->write(line);
    } catch (const Error&) {
      throw_left(rank);
    }
  }
  const auto until = deadline();
  Outcome outcome;
  for (Rank rank = 0; rank < size_; ++rank) {
    const Reply reply = answer_of(rank, until);
    outcome.add(reply, job.iterations);
  }
  return outcome;
}

}  // namespace ranvier::bench
