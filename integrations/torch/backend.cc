#include "integrations/torch/backend.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "integrations/torch/errors.h"
#include "integrations/torch/forks.h"
#include "integrations/torch/interrupts.h"
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"
#include "ranvier/callback.h"
#include "ranvier/error.h"
#include "ranvier/timeouts.h"

namespace ranvier::pytorch {
namespace {

// Once sums that nobody realigns have tolerated loss where ranks were to differ for a while.
void say_that_nobody_realigns(const Communicator& communicator) {
  if (communicator.losses().due == 0) return;
  TORCH_WARN_ONCE(
      "ranvier: the transport '", communicator.options().transport,
      "' lets ranks differ between realignments, and nobody realigns those whose gradients are summed here, "
      "by DDP, its hooks or an all_reduce: so they stay equal, as without resync; ranvier.attach with "
      "sync=\"bsp\" realigns");
}

// Why the abort() that this thread is about to call is called.
class Reason {
 public:
  explicit Reason(const std::string& text) { current = &text; }
  ~Reason() { current = nullptr; }
  Reason(const Reason&) = delete;
  Reason& operator=(const Reason&) = delete;
  static const std::string* given() { return current; }

 private:
  static thread_local const std::string* current;
};
thread_local const std::string* Reason::current = nullptr;

// Of all groups of this process that it is in by this number in the world. A process that was forked off has none of
// the groups of its parent, and a new world none of the one before, whose ranks may have been other ones. Throws
// c10::ValueError for a group of a world that stayed with the parent: nobody would meet this process there.
std::shared_ptr<engine::Siblings> siblings_of(Rank world_rank, bool is_group) {
  static std::mutex mutex;
  static std::map<std::pair<unsigned, Rank>, std::shared_ptr<engine::Siblings>> all;
  const std::lock_guard lock(mutex);
  if (is_group && !all.contains({forks(), world_rank}))
    for (const auto& [key, siblings] : all)
      if (key.second == world_rank && siblings.use_count() > 1) require_no_fork_since(key.first, world_rank);
  auto& found = all[{forks(), world_rank}];
  if (!found || !is_group) found = make_siblings();
  return found;
}

}  // namespace

RanvierBackend::RanvierBackend(std::unique_ptr<Communicator> communicator)
    : c10d::Backend(communicator->rank(), communicator->world()),
      options_(c10::make_intrusive<Options>("ranvier", communicator->options().timeout)),
      forks_(forks()),
      communicator_(std::move(communicator)) {
  init();
}

RanvierBackend::~RanvierBackend() {
  try {
    shutdown();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ranvier: %s\n", error.what());
  }
}

intrusive_ptr<c10d::Backend> RanvierBackend::split(const intrusive_ptr<c10d::Store>& store,
                                                   const std::vector<int>& ranks,
                                                   const intrusive_ptr<Options>& options) {
  const auto mine = std::ranges::find(ranks, rank_);
  if (mine == ranks.end()) return {};
  // This may be a group itself, and errors name ranks by their numbers in the world.
  return form(store, options, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
              require_communicator()->world_ranks_of(ranks));
}

intrusive_ptr<c10d::Backend> RanvierBackend::merge(const intrusive_ptr<c10d::Store>& store,
                                                   const intrusive_ptr<Options>& options, const int& rank,
                                                   const int& size) {
  return form(store, options, rank, size, {});
}

intrusive_ptr<c10d::Backend> RanvierBackend::form(const intrusive_ptr<c10d::Store>& store,
                                                  const intrusive_ptr<Options>& options, Rank rank, Rank size,
                                                  std::vector<Rank> world_ranks) {
  CommunicatorOptions settings = require_communicator()->options();
  settings.timeout = bounded(options->timeout);
  settings.join_timeout = settings.timeout;  // as of every group of torch's
  settings.world_ranks = std::move(world_ranks);
  settings.name = options->group_name;
  // Worlds that merge number their ranks anew: what is known of rank 1 in one says nothing of rank 1 in the other.
  if (settings.world_ranks.empty()) settings.siblings = make_siblings();
  // Dims suit one world only, and so does a topology.
  settings.algorithm.resize(std::min(settings.algorithm.find(':'), settings.algorithm.size()));
  settings.topology.clear();
  auto backend = make_backend(store, rank, size, settings);
  static_cast<RanvierBackend&>(*backend).options_->group_name = options->group_name;
  return backend;
}

// A communicator's threads did not come along into a forked process, and its connections belong to the parent: there it
// is left as it is, since to end it would wait for those threads and tell the other ranks that this one leaves.
void RanvierBackend::shutdown() {
  std::shared_ptr<Communicator> leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving.swap(communicator_);
  }
  // Without the lock: what fails now calls back, and callbacks may call this group.
  if (forks() != forks_) new std::shared_ptr<Communicator>(std::move(leaving));
  if (leaving) translating_errors([&] { leaving->leave(); });
}

void RanvierBackend::abort() {
  const auto communicator = current();
  if (!communicator) return;
  const std::string* const reason = Reason::given();
  communicator->abort(reason != nullptr ? *reason : communicator->rank_name(rank_) + " called abort()");
}

std::shared_ptr<Communicator> RanvierBackend::current() const {
  if (forks() != forks_) return {};
  const std::lock_guard lock(mutex_);
  return communicator_;
}

std::shared_ptr<Communicator> RanvierBackend::require_communicator() const {
  auto communicator = current();
  require_no_fork_since(forks_, rank_);
  TORCH_CHECK_VALUE(communicator, "this process group was shut down, on rank ", rank_, ": initialize another one");
  return communicator;
}

std::optional<milliseconds> RanvierBackend::timeout_for(milliseconds of_call) const {
  return bounded(of_call > milliseconds::zero() ? of_call : options_->timeout);  // negative: c10d::kUnsetTimeout
}

intrusive_ptr<PendingWork> RanvierBackend::pending(Call call, std::uint64_t number) {
  return c10::make_intrusive<PendingWork>(rank_, std::move(call), number);
}

intrusive_ptr<c10d::Work> RanvierBackend::launch(Call call, std::span<const Request> requests, bool asynchronous) {
  const auto communicator = require_communicator();
  auto work = pending(std::move(call), collectives_.fetch_add(requests.size()));
  // Whoever starts something in a callback may wait for its future next, as torch's hook for PowerSGD does, on the
  // thread that would have to move it.
  asynchronous = asynchronous && !in_callback();
  for (std::size_t index = 0; index < requests.size(); ++index) {
    Request request = requests[index];
    if (request.tolerates_loss && !request.may_differ && communicator->resync() > 0)
      say_that_nobody_realigns(*communicator);
    request.label.list = static_cast<std::uint8_t>(std::min<std::size_t>(requests.size(), 255));
    try {
      if (asynchronous)
        work->add([&] { return communicator->start(request); });
      else
        work->run([&] { communicator->run(request); });
    } catch (const c10::ValueError&) {  // refused: the communicator has counted none of the rest
      collectives_ -= requests.size() - index;
      throw;
    }
  }
  work->seal();
  return work;
}

intrusive_ptr<c10d::Backend> make_backend(const intrusive_ptr<c10d::Store>& store, Rank rank, Rank world,
                                          const CommunicatorOptions& options) {
  return translating_errors([&] {
    const auto rendezvous = torch_store(store);
    CommunicatorOptions settings = options;
    settings.element_name = element_name;
    settings.check_interrupt = check_interrupt;
    const bool is_group = !options.world_ranks.empty();
    if (!settings.siblings)
      settings.siblings =
          siblings_of(is_group ? options.world_ranks.at(static_cast<std::size_t>(rank)) : rank, is_group);
    return make_backend(Communicator::connect(*rendezvous, rank, world, settings));
  });
}

intrusive_ptr<c10d::Backend> make_backend(std::unique_ptr<Communicator> communicator) {
  return c10::make_intrusive<RanvierBackend>(std::move(communicator));
}

void abort(c10d::Backend& backend, const std::string& reason) {
  if (backend.getBackendName() != "ranvier") return;
  // What TORCH_DISTRIBUTED_DEBUG=DETAIL puts around it passes the call on, but no reason.
  const Reason here(reason);
  backend.abort();
}

LossCounts losses(const c10d::Backend& backend) { return communicator_of(backend)->losses(); }

std::shared_ptr<Communicator> communicator_of(const c10d::Backend& backend) {
  const auto* const ours = dynamic_cast<const RanvierBackend*>(&backend);
  TORCH_CHECK_VALUE(ours != nullptr,
                    "ranvier does not serve the CPU tensors of this group, or something stands around "
                    "it, as TORCH_DISTRIBUTED_DEBUG=DETAIL does: its communicator is out of reach");
  return ours->require_communicator();
}

}  // namespace ranvier::pytorch
