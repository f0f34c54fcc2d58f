#include "replica/sample_desk.h"

#include <utility>

namespace ranvier::replica {

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
  changed_.wait(lock, [&] { return own_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return *own_;
}

void SampleDesk::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  changed_.notify_all();
}

}  // namespace ranvier::replica
