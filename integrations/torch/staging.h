// Tensors on a GPU. The engine works on the host's memory: what a call takes from a device is copied into page-locked
// memory before it starts, and what it gives is copied to the device before its work completes, as gloo does. Where the
// network is slower than the bus, that costs a few percent of the exchange.
//
// Streams and events are c10's, of whatever device: nothing here is compiled against CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <vector>

namespace ranvier::pytorch {

// Page-locked memory of the host for what `like`, which is on a device, holds `sizes` of.
at::Tensor host_room(const at::Tensor& like, at::IntArrayRef sizes);

// The elements of a tensor on a device, in order and without gaps. Returns when they are there, behind whatever the
// current stream had to do first.
at::Tensor copy_on_host(const at::Tensor& tensor);

// The devices of the tensors that a call writes, and how far their current streams were when it was made: kernels may
// still be using that memory. Empty where all are on the CPU.
class Destinations {
 public:
  explicit Destinations(const std::vector<at::Tensor>& results);
  const std::vector<c10::Device>& devices() const { return devices_; }

 private:
  friend class WritingStreams;
  std::vector<c10::Device> devices_;
  std::vector<c10::Event> before_;  // by device
};

// As long as it lives, streams of its own are the current ones on all destinations, behind what came before the call.
// Copies to several devices are under way at once, and wait for nothing that the program has started since.
class WritingStreams {
 public:
  explicit WritingStreams(Destinations& destinations);
  // Returns when the devices have done what they were asked for.
  void synchronize() const;

 private:
  std::vector<c10::Stream> streams_;
  c10::MultiStreamGuard guard_;
};

}  // namespace ranvier::pytorch
