// Pushes of parameters by codes, for Python: the messages of gossip, over connections of ranvier's own.
#include <ATen/ops/empty.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "integrations/torch/backend.h"
#include "integrations/torch/errors.h"
#include "integrations/torch/tensors.h"
#include "ranvier/synchronizer.h"

namespace ranvier::pytorch {
namespace {

constexpr const char* gossip = "gossip";

struct CodedPushesHandle : torch::CustomClassHolder {
  // `group`: a ranvier backend of its own, by the name of the CPU. All ranks hold the same parameters.
  CodedPushesHandle(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& compress,
                    const at::Tensor& parameters)
      : comm(communicator_of(*group->getBackend(c10::DeviceType::CPU))), sync(translating_errors([&] {
          return std::make_unique<Synchronizer>(*comm, SynchronizerOptions{.sync = gossip, .compress = compress});
        })) {
    translating_errors([&] { sync->begin(span_of<float>(parameters, -1, "CodedPushes")); });
  }
  // Behind step number `complete`, in place.
  void push(std::int64_t complete, const at::Tensor& parameters) {
    translating_errors([&] {
      sync->end_step(static_cast<std::uint64_t>(complete), 1, span_of<float>(parameters, -1, "CodedPushes"));
    });
  }
  at::Tensor save() {
    const auto kept = translating_errors([&] { return sync->save(); });
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(kept.size())}, at::kByte);
    std::memcpy(bytes.data_ptr(), kept.data(), kept.size());
    return bytes;
  }
  void restore(const at::Tensor& kept) {
    translating_errors([&] { sync->restore(std::as_bytes(span_of<std::uint8_t>(kept, -1, "CodedPushes"))); });
  }

  const std::shared_ptr<Communicator> comm;  // outlives what uses it
  const std::unique_ptr<Synchronizer> sync;
};

}  // namespace
}  // namespace ranvier::pytorch

TORCH_LIBRARY_FRAGMENT(ranvier, library) {
  using ranvier::pytorch::CodedPushesHandle;
  library.class_<CodedPushesHandle>("CodedPushes")
      .def(torch::init<c10::intrusive_ptr<c10d::ProcessGroup>, std::string, at::Tensor>())
      .def("push", &CodedPushesHandle::push)
      .def("bytes_sent",
           [](const c10::intrusive_ptr<CodedPushesHandle>& self) {
             const auto traffic = self->sync->traffic();
             return static_cast<std::int64_t>(traffic.bytes_inside + traffic.bytes_between);
           })
      .def("save", &CodedPushesHandle::save)
      .def("restore", &CodedPushesHandle::restore);
  // Throws the Error{usage} that it would throw for a codec.
  library.def("check_codec_of_pushes(str compress) -> ()", [](const std::string& compress) {
    ranvier::pytorch::translating_errors(
        [&] { ranvier::check_compress(*ranvier::make_sync_policy(ranvier::pytorch::gossip, {}), compress); });
  });
}
