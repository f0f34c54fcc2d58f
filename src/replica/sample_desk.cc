#include "replica/sample_desk.h"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::replica {
namespace {

// As of waits in the engine: docs/decisions/0040.
constexpr auto between_looks = std::chrono::milliseconds(50);

void look_for_interrupt(Communicator& comm) {
  try {
    comm.options().check_interrupt();
  } catch (const std::exception& why) {
    const std::string_view what = why.what();
    comm.abort("it was interrupted as it waited for its turn: " + std::string(what.substr(0, what.find('\n'))));
    throw;
  }
}

}  // namespace

void SampleDesk::asks(Rank worker, std::uint64_t stop_at, std::uint64_t most) {
  const std::lock_guard lock(mutex_);
  gate_.asks(worker, stop_at, most);
}

void SampleDesk::ended_step(Rank worker, std::uint64_t samples) {
  const std::lock_guard lock(mutex_);
  gate_.ended_step(worker, samples);
}

void SampleDesk::answer() {
  std::vector<SampleGate::Decision> decisions;
  {
    const std::lock_guard lock(mutex_);
    decisions = gate_.decide();
    for (const auto& each : decisions)
      if (each.worker == comm_.rank()) own_ = each.start;
  }
  changed_.notify_all();
  for (const auto& [worker, start] : decisions) {
    if (worker == comm_.rank()) continue;
    Answer answer{start.first, start.count, start.done};
    comm_.send({answer.data(), sizeof answer, DType::u8}, worker, tag_);
  }
}

SampleStart SampleDesk::begin(std::uint64_t stop_at, std::uint64_t most) {
  {
    const std::lock_guard lock(mutex_);
    own_.reset();
    gate_.asks(comm_.rank(), stop_at, most);
  }
  answer();
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return own_ || failure_; };
  if (comm_.options().check_interrupt) {
    while (!changed_.wait_for(lock, between_looks, is_over)) {
      lock.unlock();
      look_for_interrupt(comm_);
      lock.lock();
    }
  } else {
    changed_.wait(lock, is_over);
  }
  if (failure_) std::rethrow_exception(failure_);
  return *own_;
}

void SampleDesk::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  changed_.notify_all();
}

}  // namespace ranvier::replica
