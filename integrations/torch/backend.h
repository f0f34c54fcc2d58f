// ranvier as a c10d backend: what torch.distributed and c10d::Reducer call, translated into requests to a Communicator.
//
//   auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
//   auto backend = ranvier::pytorch::make_backend(store, rank, world, {.timeout = 60s});
//   backend->allreduce(tensors)->wait();
//
// Every c10d::Work returned has a Future; tensors live until it is done. With asyncOp, which is c10d's default, it is
// under way when the call returns; without, the call returns when it is done, and throws what went wrong. Callbacks of
// a Future run on the thread that finishes the operation. Errors carry the text of ranvier::Error, as
// torch.distributed.DistBackendError.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ranvier/communicator.h"

namespace ranvier::pytorch {

// Meets the other ranks through `store`, which is needed only until this returns.
c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, Rank rank, Rank world,
                                               const CommunicatorOptions& options = {});

// Over a communicator that already stands.
c10::intrusive_ptr<c10d::Backend> make_backend(std::unique_ptr<Communicator> communicator);

// Fails every operation of every rank with `reason`. `backend` may be in a wrapper of torch's.
// Nothing happens if it is not ranvier's or was shut down.
void abort(c10d::Backend& backend, const std::string& reason);

// Of the sums that tolerated loss since the start, what was due from other ranks and what of it was missing. Throws
// ValueError for a backend that is not ranvier's itself or was shut down.
LossCounts losses(const c10d::Backend& backend);

// By the transport ("udp:loss=…,resync=K"). Nothing is lost where either is 0, or where the backend is not ranvier's
// itself.
struct BoundedLoss {
  double share = 0;          // of gradients that may be lost
  std::uint64_t resync = 0;  // every so many steps ranks are to be realigned; 0: they never differ
};
BoundedLoss bounded_loss(const c10d::Backend& backend);

// An average of gradients, f32 on the CPU, in place, which tolerates loss where the transport does; `lost` becomes what
// of this rank's own values it lacks (error feedback). With `may_differ` ranks are to be realigned: see Request. Both
// throw ValueError for a backend that is not ranvier's itself.
c10::intrusive_ptr<c10d::Work> average_gradients(c10d::Backend& backend, const at::Tensor& gradients,
                                                 const at::Tensor& lost, bool may_differ);
// Communicator::realign, of f32 on the CPU.
void realign(c10d::Backend& backend, const at::Tensor& parameters);

// What stands behind it. Throws ValueError for a backend that is not ranvier's itself or was shut down.
std::shared_ptr<Communicator> communicator_of(const c10d::Backend& backend);

// A store of torch (TCPStore, FileStore, HashStore, one written in Python) as ranvier's rendezvous sees it.
std::unique_ptr<Store> torch_store(c10::intrusive_ptr<c10d::Store> store);

}  // namespace ranvier::pytorch
