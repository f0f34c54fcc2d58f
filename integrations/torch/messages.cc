// Messages between two ranks. They are started, never run to their end: a rank may send before the other receives.
#include "integrations/torch/ranvier_backend.h"
#include "integrations/torch/tensors.h"

namespace ranvier::pytorch {
namespace {

// Of messages the shape is not compared: gloo's callers may receive another one of that size.
CallLabel type_of(const at::Tensor& tensor) { return {.element = label_of(tensor).element}; }

}  // namespace

intrusive_ptr<c10d::Work> RanvierBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor memory = packed(single(tensors, "ranvier:send"));
  const auto communicator = require_communicator();
  auto work = pending({c10d::OpType::SEND, "ranvier:send", {}, {memory}, {}}, messages_++);
  work->add([&] {
    return communicator->start_send(elements(memory), to, static_cast<std::uint64_t>(tag),
                                    timeout_for(c10d::kUnsetTimeout), type_of(memory));
  });
  work->seal();
  return work;
}

intrusive_ptr<c10d::Work> RanvierBackend::recv(Tensors& tensors, int from, int tag) {
  return receive(c10d::OpType::RECV, "ranvier:recv", tensors, from, tag);
}

intrusive_ptr<c10d::Work> RanvierBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(c10d::OpType::RECVANYSOURCE, "ranvier:recvAnySource", tensors, Communicator::any_rank, tag);
}

intrusive_ptr<c10d::Work> RanvierBackend::receive(c10d::OpType type, const char* title, Tensors& tensors, Rank from,
                                                  int tag) {
  const at::Tensor& tensor = single(tensors, title);
  const at::Tensor memory = packed_room(tensor);
  const auto communicator = require_communicator();
  Call call{type, title, {tensor}, {memory}, {}};
  add_write_back(call.write_backs, tensor, memory, title);
  auto work = pending(std::move(call), messages_++);
  work->add([&] {
    return communicator->start_recv(elements(memory), from, static_cast<std::uint64_t>(tag),
                                    timeout_for(c10d::kUnsetTimeout), type_of(memory));
  });
  work->seal();
  return work;
}

}  // namespace ranvier::pytorch
