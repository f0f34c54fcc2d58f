// What one rank's control plane told it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/control_plane.h"

namespace ranvier::engine {

class Diary {
 public:
  static constexpr auto patience = std::chrono::seconds(30);

  ControlEvents events() {
    return {.on_fault = [this](const Error& error) { write(faults_, error); },
            .on_departure =
                [this](Rank rank) {
                  left_first_ |= faults() == 0;
                  write(departures_, rank);
                }};
  }

  // The first one; empty after `patience`.
  std::optional<Error> wait_for_fault() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return !faults_.empty(); });
    return faults_.empty() ? std::nullopt : std::optional(faults_.front());
  }
  std::vector<Rank> wait_for_departures(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [&] { return departures_.size() >= count; });
    return departures_;
  }
  // Whether somebody left before there was a fault; to be asked once nothing more is told.
  bool left_first() const { return left_first_; }
  std::size_t faults() {
    const std::lock_guard lock(mutex_);
    return faults_.size();
  }

 private:
  template <class Entry>
  void write(std::vector<Entry>& page, const Entry& entry) {
    const std::lock_guard lock(mutex_);
    page.push_back(entry);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Error> faults_;
  std::vector<Rank> departures_;
  bool left_first_ = false;
};

}  // namespace ranvier::engine
