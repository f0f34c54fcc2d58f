// What the Python package calls: operators, since torch carries these between Python and C++ without Python headers.
// See docs/decisions/0003-no-python-headers.md.
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "integrations/torch/backend.h"
#include "integrations/torch/errors.h"
#include "integrations/torch/interrupts.h"
#include "integrations/torch/settings.h"
#include "ranvier/error.h"
#include "ranvier/tuning.h"

namespace ranvier::pytorch {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Settings = c10::Dict<std::string, std::string>;

CommunicatorOptions options_of(const Settings& settings) {
  std::vector<Setting> list;
  for (const auto& entry : settings) list.emplace_back(entry.key(), entry.value());
  return translating_errors([&] { return options_from(list); });
}

void check_settings(const Settings& settings) { options_of(settings); }

// `group` brings rank, world size and the store to meet in; it leaves with a ranvier backend, by the name of the CPU.
void attach(const Group& group, const Settings& settings) {
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    make_backend(group->getStore(), group->getRank(), group->getSize(), options_of(settings)));
}

void abort_group(const Group& group, const std::string& reason) {
  abort(*group->getBackend(c10::DeviceType::CPU), reason);
}

// `carrier` brings the store; null: none.
void set_interrupts_of(const std::optional<Group>& carrier) {
  set_interrupts(carrier ? (*carrier)->getStore() : c10::intrusive_ptr<c10d::Store>());
}

std::vector<std::int64_t> losses_of_group(const Group& group) {
  const LossCounts counts = losses(*group->getBackend(c10::DeviceType::CPU));
  return {static_cast<std::int64_t>(counts.due), static_cast<std::int64_t>(counts.missing)};
}

std::tuple<double, std::int64_t> bounded_loss_of_group(const Group& group) {
  const BoundedLoss loss = bounded_loss(*group->getBackend(c10::DeviceType::CPU));
  return {loss.share, static_cast<std::int64_t>(loss.resync)};
}

c10::intrusive_ptr<c10d::Work> average_gradients_in_group(const Group& group, const at::Tensor& gradients,
                                                          const at::Tensor& lost, bool may_differ) {
  return average_gradients(*group->getBackend(c10::DeviceType::CPU), gradients, lost, may_differ);
}

void realign_group(const Group& group, const at::Tensor& parameters) {
  realign(*group->getBackend(c10::DeviceType::CPU), parameters);
}

// From now on, nothing being under way: what "auto" looks at first. `table`: as `ranvier bench --tune` writes it.
void follow_in_group(const Group& group, const std::string& table) {
  translating_errors([&] {
    communicator_of(*group->getBackend(c10::DeviceType::CPU))
        ->follow(table.empty() ? TuningTable{} : TuningTable::parse(table, "the plan's table"));
  });
}

// Of each operation, as the group was made with or was told since. Python has no options of backends that torch does
// not know.
std::int64_t timeout_ms_of_group(const Group& group) {
  return group->getBackend(c10::DeviceType::CPU)->getBackendOptions()->timeout.count();
}

}  // namespace
}  // namespace ranvier::pytorch

TORCH_LIBRARY(ranvier, library) {
  library.def("check_settings(Dict(str, str) settings) -> ()", &ranvier::pytorch::check_settings);
  library.def("attach(__torch__.torch.classes.c10d.ProcessGroup group, Dict(str, str) settings) -> ()",
              &ranvier::pytorch::attach);
  library.def("abort(__torch__.torch.classes.c10d.ProcessGroup group, str reason) -> ()",
              &ranvier::pytorch::abort_group);
  library.def("set_interrupts(__torch__.torch.classes.c10d.ProcessGroup? carrier) -> ()",
              &ranvier::pytorch::set_interrupts_of);
  library.def("losses(__torch__.torch.classes.c10d.ProcessGroup group) -> int[]", &ranvier::pytorch::losses_of_group);
  library.def("bounded_loss(__torch__.torch.classes.c10d.ProcessGroup group) -> (float, int)",
              &ranvier::pytorch::bounded_loss_of_group);
  library.def(
      "average_gradients(__torch__.torch.classes.c10d.ProcessGroup group, Tensor(a!) gradients, Tensor(b!) lost, "
      "bool may_differ) -> __torch__.torch.classes.c10d.Work",
      &ranvier::pytorch::average_gradients_in_group);
  library.def("realign(__torch__.torch.classes.c10d.ProcessGroup group, Tensor(a!) parameters) -> ()",
              &ranvier::pytorch::realign_group);
  library.def("follow(__torch__.torch.classes.c10d.ProcessGroup group, str table) -> ()",
              &ranvier::pytorch::follow_in_group);
  library.def("timeout_ms(__torch__.torch.classes.c10d.ProcessGroup group) -> int",
              &ranvier::pytorch::timeout_ms_of_group);
}
