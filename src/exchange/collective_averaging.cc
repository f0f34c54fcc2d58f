#include "exchange/collective_averaging.h"

#include <exception>
#include <utility>

namespace ranvier {

void CollectiveAveraging::watch(std::vector<Work> works) {
  works_ = std::move(works);
  left_ = works_.size() + 1;
  // Callbacks keep this alive until the last of them, whatever becomes of the handle.
  const auto one_less = [this, self = shared_from_this()] {
    if (left_.fetch_sub(1) == 1) complete();
  };
  for (Work& work : works_) work.on_done(one_less);
  one_less();
}

void CollectiveAveraging::complete() {
  std::exception_ptr problem;
  std::shared_ptr<Phased> rest;
  for (const Work& work : works_)
    if (auto error = work.error(); error && !problem) problem = error;
  try {
    if (!problem) rest = take();
  } catch (...) {
    problem = std::current_exception();
  }
  if (!rest) return finish(problem);
  go_on_with(rest, [this](std::exception_ptr failure) { finish(std::move(failure)); });
}

void CollectiveAveraging::wait() {
  try {
    Work::wait_all(works_);
  } catch (...) {  // complete() finds it
  }
  StagedAveraging::wait();
}

}  // namespace ranvier
