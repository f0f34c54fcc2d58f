// A barrier that says who did not come: rank 0 hears from every rank within the timeout and answers, or ends the group
// with the names of those it did not hear from. Two messages a rank; what fails says so in the words of c10d's gloo
// backend, which scripts look for. It counts as a collective, so that ranks which call another one are told at once.
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "integrations/torch/errors.h"
#include "integrations/torch/ranvier_backend.h"
#include "ranvier/error.h"
#include "ranvier/timeouts.h"

namespace ranvier::pytorch {
namespace {

using std::chrono::steady_clock;

// No tag of a user, which are ints.
constexpr std::uint64_t barrier_tag = std::uint64_t{1} << 40;

struct Message {
  std::array<std::uint8_t, 1> byte{};
  Work work;
};
using Messages = std::shared_ptr<std::vector<Message>>;

// The byte is the engine's until the message has ended: until then `messages` lives, whatever becomes of the barrier.
void keep(const Messages& messages, Message& message, Work work) {
  message.work = std::move(work);
  message.work.on_done([messages] {});
}

// Whether it ended well within `limit`. After an error the communicator has failed, and so has every message.
bool arrives(Work& work, steady_clock::duration limit) {
  try {
    return work.wait_for(std::max(limit, steady_clock::duration::zero()));
  } catch (const Error&) {
    return false;
  }
}

std::string list(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string numbered(std::uint32_t number) { return "monitored_barrier #" + std::to_string(number) + ": "; }

// Ends the group with `reason` on every rank.
[[noreturn]] void give_up(Communicator& communicator, std::uint32_t number, const std::string& reason) {
  const Error error =
      Error(ErrorKind::timeout, numbered(number) + reason).with_flight_record(communicator.flight_record());
  communicator.abort(error.what());
  std::rethrow_exception(to_torch(std::make_exception_ptr(error)));
}

// What `work` failed with; none while it runs.
std::optional<Error> failure(const Work& work) {
  try {
    if (const std::exception_ptr error = work.error()) std::rethrow_exception(error);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Why a message failed, without what the message was: nobody but this file has heard of that.
std::string cause(const Error& error) {
  const std::string text = error.what();
  const std::string_view behind = " failed: ";
  const std::size_t at = text.find(behind);
  return at == std::string::npos ? text : text.substr(at + behind.size());
}

// That ranks call something else is the error then, and not that they do not come.
void throw_mismatch(std::uint32_t number, const std::optional<Error>& error) {
  if (!error || error->kind() != ErrorKind::mismatch) return;
  throw Error(error->kind(), numbered(number) + cause(*error), error->culprit())
      .with_flight_record(error->flight_record());
}

}  // namespace

void RanvierBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto communicator = require_communicator();
  const milliseconds timeout = bounded(options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout);
  translating_errors([&] {
    const std::uint32_t number = communicator->count(Composite::monitored_barrier);
    ++collectives_;
    if (rank_ == 0)
      await_reports(*communicator, number, timeout, wait_all_ranks);
    else
      report_to_first(*communicator, number, timeout);
  });
}

void RanvierBackend::await_reports(Communicator& communicator, std::uint32_t number, milliseconds timeout,
                                   bool wait_all_ranks) {
  const auto deadline = steady_clock::now() + timeout;
  const milliseconds never = timeout + std::chrono::hours(24);  // the deadline is kept here, and not by the engine
  if (timeout <= milliseconds::zero())                          // for everybody: nobody waits, and nobody need be told
    throw c10::DistBackendError("Rank 0 timed out in monitoredBarrier after " + std::to_string(timeout.count()) +
                                " ms.");
  const auto messages = std::make_shared<std::vector<Message>>(2 * static_cast<std::size_t>(size_));
  const std::span<Message> reports(messages->data(), messages->size() / 2);
  const std::span<Message> answers(messages->data() + reports.size(), reports.size());
  for (Rank rank = 1; rank < size_; ++rank) {
    Message& report = reports[static_cast<std::size_t>(rank)];
    keep(messages, report, communicator.start_recv(report.byte, rank, barrier_tag, never));
  }
  std::vector<Rank> missing;
  std::string reason;
  for (Rank rank = 1; rank < size_ && (wait_all_ranks || missing.empty()); ++rank) {
    Work& report = reports[static_cast<std::size_t>(rank)].work;
    if (arrives(report, deadline - steady_clock::now())) continue;
    if (const auto error = failure(report)) {  // the whole group has failed, possibly through another rank
      throw_mismatch(number, error);
      missing = {error->culprit() > 0 ? error->culprit() : rank};
      reason = ": " + cause(*error);
      break;
    }
    missing.push_back(rank);
  }
  if (!missing.empty())
    give_up(communicator, number,
            (missing.size() == 1 ? "Rank " : "Ranks ") + list(missing) + " failed to pass monitoredBarrier in " +
                std::to_string(timeout.count()) + " ms" + reason);
  for (Rank rank = 1; rank < size_; ++rank) {
    Message& answer = answers[static_cast<std::size_t>(rank)];
    keep(messages, answer, communicator.start_send(answer.byte, rank, barrier_tag));
  }
  for (Message& answer : answers.subspan(1)) answer.work.wait();
}

// Waits longer than rank 0 does, which then says who is to blame.
void RanvierBackend::report_to_first(Communicator& communicator, std::uint32_t number, milliseconds timeout) {
  const milliseconds patience = timeout + std::min<milliseconds>(timeout, std::chrono::seconds(5));
  const milliseconds never = patience + std::chrono::hours(24);
  const auto messages = std::make_shared<std::vector<Message>>(2);
  Message& report = messages->front();
  Message& answer = messages->back();
  keep(messages, report, communicator.start_send(report.byte, 0, barrier_tag, never));
  keep(messages, answer, communicator.start_recv(answer.byte, 0, barrier_tag, never));
  if (arrives(answer.work, patience)) return report.work.wait();
  const auto error = failure(answer.work);
  throw_mismatch(number, error);
  give_up(communicator, number,
          "Rank " + std::to_string(rank_) +
              " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: " +
              (error ? cause(*error) : "it did not answer within " + std::to_string(patience.count()) + " ms"));
}

}  // namespace ranvier::pytorch
