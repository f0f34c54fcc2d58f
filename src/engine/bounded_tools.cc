#include "engine/bounded_tools.h"

#include <utility>

namespace ranvier::engine {
namespace {

// Ranks begin at different times, and those that are no later than they mostly are should be waited for.
constexpr double usual_start = 0.8;

}  // namespace

BoundedTools::BoundedTools(PartialMessages& messages_of_transport, double tolerated, std::uint64_t resync_after,
                           Rank world)
    : messages(messages_of_transport),
      loss(tolerated),
      resync(resync_after),
      patience(tolerated, 0.5, Patience::first_silence, Patience::first_silence),
      share_patience(resync > 0 ? static_cast<std::size_t>(world) : 0, Patience(tolerated, usual_start, {})),
      average_patience(share_patience.size(), Patience(0, usual_start, {})),
      allowance_(tolerated) {}

void BoundedTools::averages_due(std::size_t pieces) {
  const std::lock_guard lock(mutex_);
  allowance_.due(pieces);
}

bool BoundedTools::may_lack(std::size_t pieces) {
  const std::lock_guard lock(mutex_);
  return allowance_.take(pieces);
}

void BoundedTools::realigned() {
  const std::lock_guard lock(mutex_);
  allowance_.renew();
}

BoundedTools::Memory BoundedTools::take() {
  Memory memory{.spread = {}, .unit = unit_of(units_)};
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return memory;
  memory.spread = std::move(free_.back());
  free_.pop_back();
  return memory;
}

BoundedTools::Unit BoundedTools::unit_of(const std::shared_ptr<Units>& units) {
  auto unit = std::make_unique<std::vector<std::byte>>();
  {
    const std::lock_guard lock(units->mutex);
    if (units->free.empty()) {
      units->free.reserve(++units->made);  // nothing can fail when they come back
    } else {
      unit = std::move(units->free.back());
      units->free.pop_back();
    }
  }
  return {unit.release(), [units](std::vector<std::byte>* bytes) {
            const std::lock_guard lock(units->mutex);
            units->free.emplace_back(bytes);
          }};
}

void BoundedTools::give_back(Memory memory) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(memory.spread));
}

}  // namespace ranvier::engine
