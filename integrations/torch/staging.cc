#include "integrations/torch/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace ranvier::pytorch {

using c10::impl::VirtualGuardImpl;

at::Tensor host_room(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions(like.scalar_type()).device(at::kCPU).pinned_memory(true));
}

at::Tensor copy_on_host(const at::Tensor& tensor) {
  at::Tensor copy = host_room(tensor, tensor.sizes());
  copy.copy_(tensor);
  return copy;
}

Destinations::Destinations(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& tensor : results) {
    const c10::Device device = tensor.device();
    if (device.is_cpu() || std::ranges::find(devices_, device) != devices_.end()) continue;
    devices_.push_back(device);
    before_.emplace_back(device.type()).record(VirtualGuardImpl(device.type()).getStream(device));
  }
}

namespace {

std::vector<c10::Stream> streams_behind(std::vector<c10::Event>& before, const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    streams.push_back(VirtualGuardImpl(devices[i].type()).getStreamFromGlobalPool(devices[i]));
    before[i].block(streams.back());
  }
  return streams;
}

}  // namespace

WritingStreams::WritingStreams(Destinations& destinations)
    : streams_(streams_behind(destinations.before_, destinations.devices_)), guard_(streams_) {}

void WritingStreams::synchronize() const {
  for (const c10::Stream& stream : streams_) stream.synchronize();
}

}  // namespace ranvier::pytorch
