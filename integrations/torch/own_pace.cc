// Replicas at their own pace for Python: python/ranvier/_own_pace.py brings them the steps of its optimizers.
#include "ranvier/own_pace.h"

#include <ATen/ops/from_blob.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "integrations/torch/backend.h"
#include "integrations/torch/errors.h"
#include "integrations/torch/forks.h"
#include "integrations/torch/tensors.h"
#include "ranvier/error.h"

namespace ranvier::pytorch {
namespace {

std::unique_ptr<SyncPolicy> policy_of(const std::string& spec) { return make_sync_policy(spec, {}); }

struct OwnPaceHandle : torch::CustomClassHolder {
  // `group`: a ranvier backend of its own, by the name of the CPU. Tensors of `rows` and `columns` each.
  OwnPaceHandle(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& sync,
                const at::Tensor& parameters, double samples, const std::string& compress, double momentum,
                bool has_velocity, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns)
      : comm(communicator_of(*group->getBackend(c10::DeviceType::CPU))), pace(translating_errors([&] {
          OwnPaceOptions options{
              .samples = samples, .compress = compress, .momentum = momentum, .has_velocity = has_velocity};
          for (std::size_t i = 0; i < rows.size(); ++i)
            options.tensors.push_back({.id = i,
                                       .rows = static_cast<std::size_t>(rows[i]),
                                       .columns = static_cast<std::size_t>(columns.at(i))});
          return std::make_unique<OwnPace>(*comm, *policy_of(sync), span_of<float>(parameters, -1, "OwnPace"), options);
        })) {}

  // A child that was forked off has neither the threads nor the connections, which are the parent's.
  ~OwnPaceHandle() override {
    if (forks() == forks_) return;
    (void)pace.release();
    new std::shared_ptr<Communicator>(comm);
  }

  // In place. `began`: empty where it is what the last call left; `velocity`: OwnPace::Step.
  void step(const at::Tensor& parameters, const at::Tensor& began, const at::Tensor& velocity, double rate,
            double samples, double seconds) {
    require_no_fork_since(forks_, comm->rank());
    translating_errors([&] {
      pace->step(
          {.rate = rate, .samples = samples, .seconds = seconds, .velocity = span_of<float>(velocity, -1, "step")},
          span_of<float>(parameters, -1, "step"), span_of<float>(began, -1, "step"));
    });
  }
  void set_samples(double samples) {
    translating_errors([&] { pace->set_samples(samples); });
  }
  void meet(const at::Tensor& parameters, bool ends) {
    require_no_fork_since(forks_, comm->rank());
    translating_errors([&] {
      pace->meet(span_of<float>(parameters, -1, "meet"), ends ? OwnPace::Then::ends : OwnPace::Then::goes_on);
    });
  }
  std::vector<std::int64_t> groups() const {
    const auto all = pace->groups();
    return {all.begin(), all.end()};
  }
  at::Tensor owed() const {
    auto owed = pace->owed();
    return at::from_blob(owed.data(), {static_cast<std::int64_t>(owed.size())}, at::kFloat).clone();
  }
  void owe(const at::Tensor& owed) {
    const auto values = span_of<float>(owed, -1, "owe");
    pace->owe({values.begin(), values.end()});
  }

  const std::shared_ptr<Communicator> comm;  // outlives what uses it
  std::unique_ptr<OwnPace> pace;
  const unsigned forks_ = forks();
};

// Whether ranks go at their own pace by this policy. Throws the Error{usage} of OwnPace::check where they cannot.
bool at_own_pace(const std::string& sync, const std::string& compress) {
  return translating_errors([&] {
    const auto policy = policy_of(sync);
    if (!policy->goes_at_own_pace()) return false;
    OwnPace::check(*policy, compress);
    return true;
  });
}

}  // namespace
}  // namespace ranvier::pytorch

TORCH_LIBRARY_FRAGMENT(ranvier, library) {
  using ranvier::pytorch::OwnPaceHandle;
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
  using Numbers = std::vector<std::int64_t>;
  using Handle = c10::intrusive_ptr<OwnPaceHandle>;
  library.class_<OwnPaceHandle>("OwnPace")
      .def(torch::init<Group, std::string, at::Tensor, double, std::string, double, bool, Numbers, Numbers>())
      .def("step", &OwnPaceHandle::step)
      .def("set_samples", [](const Handle& self, double samples) { self->set_samples(samples); })
      .def("meet", &OwnPaceHandle::meet)
      .def("groups", &OwnPaceHandle::groups)
      .def("shares", [](const Handle& self) { return self->pace->shares(); })
      .def("exchanges", [](const Handle& self) { return static_cast<std::int64_t>(self->pace->exchanges()); })
      .def("bytes_sent", [](const Handle& self) { return static_cast<std::int64_t>(self->pace->bytes_sent()); })
      .def("owed", &OwnPaceHandle::owed)
      .def("owe", &OwnPaceHandle::owe);
  library.def("at_own_pace(str sync, str compress) -> bool", &ranvier::pytorch::at_own_pace);
}
