#include "transport/ucx/ucx_messages.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

// For what has been sent to leave the host before a connection is closed.
constexpr auto farewell = std::chrono::seconds(1);

void check(ucs_status_t status, const char* call) {
  if (status == UCS_OK) return;
  throw Error(
      ErrorKind::config,
      fmt::format("{} failed: {}; UCX_TLS and UCX_NET_DEVICES say what UCX may use, and ucx_info -d what it finds",
                  call, ucs_status_string(status)));
}

// UCX chooses by names of devices.
std::string device_of(const std::string& interface_address) {
  const auto wanted = parse_address(address_of(interface_address), 0);
  ifaddrs* list = nullptr;
  if (!wanted || getifaddrs(&list) != 0) return {};
  std::string name;
  for (const ifaddrs* each = list; each != nullptr && name.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != wanted->storage.ss_family) continue;
    SocketAddress here;
    here.size = each->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&here.storage, each->ifa_addr, here.size);
    if (here.text() == wanted->text()) name = each->ifa_name;
  }
  freeifaddrs(list);
  return name;
}

ucp_context_h open_context(const std::string& interface_address) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> owned(config, ucp_config_release);
  if (!interface_address.empty()) {
    const std::string device = device_of(interface_address);
    if (device.empty())
      throw Error(ErrorKind::config, fmt::format("no interface of this host has the address {}", interface_address));
    check(ucp_config_modify(config, "NET_DEVICES", device.c_str()), "ucp_config_modify");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  check(ucp_init(&params, config, &context), "ucp_init");
  return context;
}

// The environment, which UCX reads while this lives, names a range of ports; what the user has set there stays. (Of the
// ways to tell UCX this is the one that is the same in all its versions: ucp_config_modify took PORT_RANGE in 1.13.)
// One at a time; that another thread of the program reads the environment meanwhile is the risk of setenv.
class PortSetting {
 public:
  explicit PortSetting(const PortRange& ports)
      : alone_(mutex()), set_(ports.first != 0 && std::getenv(name) == nullptr) {
    if (set_) setenv(name, fmt::format("{}-{}", ports.first, ports.last).c_str(), 0);
  }
  ~PortSetting() {
    if (set_) unsetenv(name);
  }
  PortSetting(const PortSetting&) = delete;
  PortSetting& operator=(const PortSetting&) = delete;

 private:
  static constexpr const char* name = "UCX_TCP_PORT_RANGE";
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  const std::lock_guard<std::mutex> alone_;
  const bool set_;
};

constexpr ucp_tag_t tag_of(Rank from, Lane lane) { return static_cast<ucp_tag_t>(from) << 8 | lane; }
constexpr ucp_tag_t whole_tag = ~ucp_tag_t{0};

std::size_t index(Rank peer, Lane lane) { return static_cast<std::size_t>(peer) * lane_count + lane; }

}  // namespace

UcxMessages::UcxMessages(Rank rank, Rank world, const std::string& interface_address, const PortRange& ports)
    : rank_(rank),
      context_(open_context(interface_address)),
      peers_(static_cast<std::size_t>(world)),
      claimed_(peers_.size() * lane_count) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // whoever drives the engine calls
  try {
    const PortSetting setting(ports);
    check(ucp_worker_create(context_, &params, &worker_), "ucp_worker_create");
    check(ucp_worker_get_efd(worker_, &events_), "ucp_worker_get_efd");
  } catch (...) {
    close();
    throw;
  }
}

UcxMessages::~UcxMessages() { close(); }

std::string UcxMessages::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check(ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return copy;
}

void UcxMessages::connect(Rank peer, const std::string& address) {
  Peer& its = peers_[static_cast<std::size_t>(peer)];
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* its_peer, ucp_ep_h, ucs_status_t status) {
    static_cast<Peer*>(its_peer)->problem = status;
  };
  params.err_handler.arg = &its;
  ucs_status_t status = ucp_ep_create(worker_, &params, &its.endpoint);
  if (status != UCS_OK) {
    // Not every transport of UCX notices a dead peer; ranvier's control plane does.
    params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    params.field_mask &= ~static_cast<std::uint64_t>(UCP_EP_PARAM_FIELD_ERR_HANDLER);
    status = ucp_ep_create(worker_, &params, &its.endpoint);
  }
  if (status != UCS_OK)
    throw Error(ErrorKind::unreachable,
                fmt::format("UCX finds no way from rank {} to rank {}: {}; compare UCX_TLS and UCX_NET_DEVICES on both",
                            rank_, peer, ucs_status_string(status)),
                peer);
}

UcxMessages::Transfer UcxMessages::transfer_of(ucs_status_ptr_t request) const {
  if (request == nullptr) return none;
  if (UCS_PTR_IS_ERR(request))
    throw Error(ErrorKind::peer_lost,
                fmt::format("UCX failed on rank {}: {}", rank_, ucs_status_string(UCS_PTR_STATUS(request))));
  return reinterpret_cast<Transfer>(request);
}

UcxMessages::Transfer UcxMessages::send(Rank to, Lane lane, ConstBytes message, bool until_taken) {
  const ucp_request_param_t plain{};
  const auto call = until_taken ? ucp_tag_send_sync_nbx : ucp_tag_send_nbx;
  return transfer_of(
      call(peers_[static_cast<std::size_t>(to)].endpoint, message.data(), message.size(), tag_of(rank_, lane), &plain));
}

std::optional<std::size_t> UcxMessages::arrived(Rank from, Lane lane) {
  Claimed& claimed = claimed_[index(from, lane)];
  if (claimed.message != nullptr) return claimed.bytes;
  const Peer& peer = peers_[static_cast<std::size_t>(from)];
  ucp_tag_recv_info_t info{};
  // Once more after a failure: what came before it counts.
  ucp_worker_progress(worker_);
  claimed.message = ucp_tag_probe_nb(worker_, tag_of(from, lane), whole_tag, 1, &info);
  if (claimed.message == nullptr) {
    if (peer.problem == UCS_OK) return std::nullopt;
    throw Error(
        ErrorKind::peer_lost,
        fmt::format("rank {} closed its ucx connection to rank {}: {}", from, rank_, ucs_status_string(peer.problem)),
        from);
  }
  return claimed.bytes = info.length;
}

UcxMessages::Transfer UcxMessages::receive(Rank from, Lane lane, Bytes into) {
  Claimed& claimed = claimed_[index(from, lane)];
  const ucp_request_param_t plain{};
  const ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(worker_, into.data(), into.size(), claimed.message, &plain);
  claimed.message = nullptr;
  return transfer_of(request);
}

bool UcxMessages::over(Transfer transfer) {
  auto* const request = reinterpret_cast<void*>(transfer);  // NOLINT(performance-no-int-to-ptr): it was one
  ucs_status_t status = ucp_request_check_status(request);
  if (status == UCS_INPROGRESS) {
    ucp_worker_progress(worker_);
    status = ucp_request_check_status(request);
  }
  if (status == UCS_INPROGRESS) return false;
  ucp_request_free(request);
  if (status != UCS_OK)
    throw Error(ErrorKind::peer_lost,
                fmt::format("a ucx transfer of rank {} failed: {}", rank_, ucs_status_string(status)));
  return true;
}

bool UcxMessages::abandon(Transfer transfer) {
  auto* const request = reinterpret_cast<void*>(transfer);  // NOLINT(performance-no-int-to-ptr): it was one
  ucp_request_cancel(worker_, request);
  for (int tries = 0; tries < 100 && ucp_request_check_status(request) == UCS_INPROGRESS; ++tries)
    ucp_worker_progress(worker_);
  if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
  ucp_request_free(request);
  return true;
}

// Arming fails where something came since the worker was last called.
bool UcxMessages::may_sleep() { return ucp_worker_progress(worker_) == 0 && ucp_worker_arm(worker_) == UCS_OK; }

void UcxMessages::sleep(std::chrono::nanoseconds limit, const Fd& interrupt, int) {
  std::array<pollfd, 2> events{
      {{.fd = events_, .events = POLLIN, .revents = 0}, {.fd = interrupt.get(), .events = POLLIN, .revents = 0}}};
  limit = std::clamp<std::chrono::nanoseconds>(limit, std::chrono::nanoseconds(0), std::chrono::hours(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  ppoll(events.data(), events.size(), &time, nullptr);
}

// Whether it has ended by `until`, and is freed.
bool UcxMessages::ends(ucs_status_ptr_t request, std::chrono::steady_clock::time_point until) {
  if (request == nullptr || UCS_PTR_IS_ERR(request)) return true;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) {
    if (std::chrono::steady_clock::now() >= until) return false;
    ucp_worker_progress(worker_);
  }
  ucp_request_free(request);
  return true;
}

// What was sent is flushed first, as far as the peers let it: between two who live there may be messages that neither
// will ask for, since a third one is lost. UCX (1.13) ends the process that destroys a worker with a message under way,
// also behind closing by force: such a worker stays.
void UcxMessages::close() {
  const auto until = std::chrono::steady_clock::now() + farewell;
  std::vector<ucs_status_ptr_t> flushing(peers_.size(), nullptr);
  const ucp_request_param_t plain{};
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (peers_[i].endpoint != nullptr && peers_[i].problem == UCS_OK)
      flushing[i] = ucp_ep_flush_nbx(peers_[i].endpoint, &plain);
  bool in_order = true;
  std::vector<ucs_status_ptr_t> closing;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].endpoint == nullptr) continue;
    const bool flushed = ends(flushing[i], until) && peers_[i].problem == UCS_OK;
    in_order = in_order && flushed;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = flushed ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
    closing.push_back(ucp_ep_close_nbx(peers_[i].endpoint, &how));
  }
  const auto last = std::chrono::steady_clock::now() + farewell;
  for (const ucs_status_ptr_t request : closing) in_order = ends(request, last) && in_order;
  if (!in_order) return;
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

}  // namespace ranvier::transport
