// Control news that may come before there is an engine to hear it.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/control_plane.h"
#include "engine/engine.h"

namespace ranvier::engine {

class NewsDesk {
 public:
  ControlEvents events() {
    return {.on_fault = [this](const Error& why) { hear([why](Engine& engine) { engine.fail(why); }); },
            .on_departure = [this](Rank rank) { hear([rank](Engine& engine) { engine.departed(rank); }); }};
  }
  void deliver_to(Engine& engine) {
    const std::lock_guard lock(mutex_);
    engine_ = &engine;
    for (const auto& news : early_) news(engine);
    early_.clear();
  }

 private:
  void hear(std::function<void(Engine&)> news) {
    const std::lock_guard lock(mutex_);
    if (engine_ != nullptr)
      news(*engine_);
    else
      early_.push_back(std::move(news));
  }

  std::mutex mutex_;
  Engine* engine_ = nullptr;
  std::vector<std::function<void(Engine&)>> early_;
};

}  // namespace ranvier::engine
