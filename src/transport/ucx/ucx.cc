// The ucx transport: each lane between two ranks is a tag of UCP's messages, whatever carries them.
#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "ranvier/error.h"
#include "transport/module.h"
#include "transport/tagged_transport.h"
#include "transport/ucx/ucx_messages.h"

namespace ranvier::transport {
namespace {

constexpr std::string_view greeting = "ucx-1 ";

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(const WorldInfo& info, const std::string& interface_address)
      : info_(info), messages_(std::make_unique<UcxMessages>(info.rank, info.world, interface_address)) {}

  // The host in front, for counting who shares its cores: a length, the name, and UCX's own bytes.
  std::string address() const override {
    const std::string host = host_identity();
    return fmt::format("{}{}:{}{}", greeting, host.size(), host, messages_->address());
  }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point) override {
    Rank on_this_host = 0;
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      const auto [host, address] = taken_apart(addresses[rank], static_cast<Rank>(rank));
      on_this_host += host == host_identity() ? 1 : 0;
      if (static_cast<Rank>(rank) != info_.rank) messages_->connect(static_cast<Rank>(rank), address);
    }
    return tagged_transport({.name = "ucx",
                             .rank = info_.rank,
                             .world = info_.world,
                             .crowded = on_this_host > sysconf(_SC_NPROCESSORS_ONLN)},
                            std::move(messages_));
  }

 private:
  static std::pair<std::string, std::string> taken_apart(const std::string& text, Rank rank) {
    std::size_t length = 0;
    const std::size_t colon = text.find(':');
    const bool greeted = text.starts_with(greeting) && colon != text.npos;
    for (std::size_t i = greeting.size(); greeted && i < colon; ++i)
      length = text[i] >= '0' && text[i] <= '9' && length < 1000 ? 10 * length + static_cast<std::size_t>(text[i] - '0')
                                                                 : text.size();
    if (!greeted || length >= text.size() - colon - 1)
      throw Error(
          ErrorKind::mismatch,
          fmt::format("rank {} published no ucx address of this version; run the same ranvier on all ranks", rank),
          rank);
    return {text.substr(colon + 1, length), text.substr(colon + 1 + length)};
  }

  const WorldInfo info_;
  std::unique_ptr<UcxMessages> messages_;
};

}  // namespace
}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module{
    .version = RANVIER_VERSION,
    .endpoint = [](const ranvier::WorldInfo& info,
                   const ranvier::transport::ModuleOptions& options) -> std::unique_ptr<ranvier::Endpoint> {
      return std::make_unique<ranvier::transport::UcxEndpoint>(info, options.interface_address);
    }};
