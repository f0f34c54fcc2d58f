// What goes from the control plane to the engine: news, which may come before there is an engine to hear them, and what
// the others ask.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/control_plane.h"
#include "engine/engine.h"

namespace ranvier::engine {

class NewsDesk {
 public:
  ControlEvents events() {
    return {.on_fault = [this](const Error& why) { hear([why](Engine& engine) { engine.fail(why); }); },
            .on_departure = [this](Rank rank) { hear([rank](Engine& engine) { engine.departed(rank); }); },
            .on_beat =
                [this] {
                  const std::lock_guard lock(mutex_);
                  if (engine_ != nullptr) engine_->relieve();
                }};
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

// From now on the calls of the others are compared with those of `engine`, it answers their questions, and what comes
// over its transport shows who is there.
inline void stand_behind(ControlPlane& control, const std::shared_ptr<Engine>& engine) {
  control.follow(engine->shared_history());
  control.answer_by([known = std::weak_ptr(engine)](const Question& question) {
    const auto alive = known.lock();
    return alive ? alive->answer(question) : std::pair<Answer, std::string>();
  });
  control.look_for([known = std::weak_ptr(engine)](Rank rank) {
    const auto alive = known.lock();
    return alive ? alive->last_sign(rank) : std::nullopt;
  });
}

}  // namespace ranvier::engine
