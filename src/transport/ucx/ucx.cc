// The ucx transport: each lane between two ranks is a tag of UCP's messages, whatever carries them.
#include <fmt/format.h>

#include <utility>

#include "base/host.h"
#include "ranvier/error.h"
#include "transport/module.h"
#include "transport/tagged_transport.h"
#include "transport/ucx/ucx_address.h"
#include "transport/ucx/ucx_messages.h"

namespace ranvier::transport {
namespace {

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(const WorldInfo& info, const ModuleOptions& options)
      : info_(info),
        messages_(std::make_unique<UcxMessages>(info.rank, info.world, options.interface_address, options.ports)) {}

  std::string address() const override {
    return UcxAddress{.cpus = CpuSet::own(), .host = host_identity(), .worker = messages_->address()}.text();
  }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point) override {
    SharedCores cores;
    for (Rank rank = 0; rank < info_.world; ++rank) {
      const auto address = UcxAddress::parse(addresses[static_cast<std::size_t>(rank)]);
      if (!address)
        throw Error(
            ErrorKind::mismatch,
            fmt::format("rank {} published no ucx address of this version; run the same ranvier on all ranks", rank),
            rank);
      if (address->host == host_identity()) cores.add_rank(address->cpus);
      if (rank != info_.rank) messages_->connect(rank, address->worker);
    }
    return tagged_transport(
        {.name = "ucx", .rank = info_.rank, .world = info_.world, .ranks_per_core = cores.ranks_per_core()},
        std::move(messages_));
  }

 private:
  const WorldInfo info_;
  std::unique_ptr<UcxMessages> messages_;
};

}  // namespace
}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module{
    .version = RANVIER_VERSION,
    .endpoint = [](const ranvier::WorldInfo& info,
                   const ranvier::transport::ModuleOptions& options) -> std::unique_ptr<ranvier::Endpoint> {
      return std::make_unique<ranvier::transport::UcxEndpoint>(info, options);
    }};
