// Inboxes in memory files of which every rank maps its part of every other's.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/doorbell.h"
#include "transport/inbox.h"
#include "transport/mapping.h"
#include "transport/memory_file.h"
#include "transport/published_address.h"
#include "transport/ring_transport.h"
#include "transport/shm_address.h"

namespace ranvier {
namespace {

using transport::InboxHeader;
using transport::InboxLayout;
using transport::InboxSection;
using transport::Mapping;
using transport::MemoryFile;
using transport::RingWorld;
using transport::ShmAddress;

struct SharedMemory {
  Mapping inbox;                // of this rank
  std::vector<Mapping> pages;   // the others' headers
  std::vector<Mapping> outbox;  // this rank's sections of the others' inboxes
};

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(const WorldInfo& info, const std::string& node)
      : info_(info), layout_(info.world), file_(MemoryFile::make("ranvier-inbox", layout_.bytes())) {
    memory_->inbox = Mapping::of_file(file_.number(), 0, layout_.bytes());
    address_ = {.host = transport::shm_host(node),
                .process = getpid(),
                .file = file_.number(),
                .token = transport::new_segment_token()};
    transport::open_inbox(inbox(), info).token = address_.token;
    for (Rank peer = 0; peer < info.world; ++peer)
      if (peer != info.rank) transport::prefault(inbox() + layout_.section_offset(peer), layout_.collective_bytes());
  }

  std::string address() const override { return address_.text(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    if (addresses.size() != static_cast<std::size_t>(info_.world))
      throw Error(ErrorKind::usage, fmt::format("shared memory was given {} addresses for a world of {} ranks",
                                                addresses.size(), info_.world));
    if (!file_.valid()) throw Error(ErrorKind::usage, "a shared-memory endpoint was connected twice; make a new one");
    RingWorld world{.name = "shm", .rank = info_.rank, .layout = layout_, .memory = memory_};
    for (Rank peer = 0; peer < info_.world; ++peer) {
      world.inbound.push_back(inbox() + layout_.section_offset(peer));
      if (peer == info_.rank) {
        world.headers.push_back(&own_header());
        world.outbound.push_back(world.inbound.back());
      } else {
        attach(peer, addresses[static_cast<std::size_t>(peer)], world);
      }
    }
    wait_until_attached(deadline);
    file_.close();  // everybody has it mapped
    return transport::ring_transport(std::move(world));
  }

 private:
  std::byte* inbox() const { return memory_->inbox.data(); }
  InboxHeader& own_header() const { return *reinterpret_cast<InboxHeader*>(inbox()); }
  InboxSection& section_of(Rank peer) const {
    return *reinterpret_cast<InboxSection*>(inbox() + layout_.section_offset(peer));
  }

  void attach(Rank peer, const std::string& published, RingWorld& world) {
    const ShmAddress address = reachable(peer, published);
    const MemoryFile file = open_inbox_of(peer, address);
    memory_->pages.push_back(Mapping::of_file(file.number(), 0, InboxLayout::page));
    auto& header = *reinterpret_cast<InboxHeader*>(memory_->pages.back().data());
    check_header(peer, address, header);
    memory_->outbox.push_back(
        Mapping::of_file(file.number(), layout_.section_offset(info_.rank), layout_.section_bytes()));
    std::byte* section = memory_->outbox.back().data();
    transport::prefault(section, layout_.collective_bytes());
    world.headers.push_back(&header);
    world.outbound.push_back(section);
    reinterpret_cast<InboxSection*>(section)->attached.store(1);
    header.attached.fetch_add(1);
    transport::futex_wake_all(header.attached);
  }

  ShmAddress reachable(Rank peer, const std::string& published) const {
    auto address = ShmAddress::parse(published);
    if (!address)
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} published '{}' as its shared-memory address, which this version "
                              "of ranvier does not read; install the same version everywhere",
                              peer, transport::kind_of_address(published)),
                  peer);
    if (address->host != address_.host)
      throw Error(ErrorKind::unreachable,
                  fmt::format("rank {} shares no memory with rank {}: it runs on another host, in "
                              "another container or as another user; use transport auto, which takes tcp to it",
                              peer, info_.rank),
                  peer);
    return *std::move(address);
  }

  MemoryFile open_inbox_of(Rank peer, const ShmAddress& address) const {
    MemoryFile file = MemoryFile::open(address.process, address.file);
    if (!file.valid())
      throw Error(ErrorKind::unreachable,
                  fmt::format("the shared memory of rank {} (process {}) cannot be opened: {}; see "
                              "whether it still runs, or use the tcp transport",
                              peer, address.process, std::strerror(errno)),
                  peer);
    if (!file.is_own())
      throw Error(ErrorKind::unreachable,
                  fmt::format("the shared memory of rank {} (process {}) belongs to another user; run all ranks as one "
                              "user, or use the tcp transport",
                              peer, address.process),
                  peer);
    if (!file.is_sealed_at(layout_.bytes())) throw_foreign(peer, address.process);
    return file;
  }

  void check_header(Rank peer, const ShmAddress& address, const InboxHeader& header) const {
    if (header.magic != transport::inbox_magic || header.token != address.token) throw_foreign(peer, address.process);
    if (header.version != transport::inbox_version || header.rank != peer || header.world != info_.world ||
        header.epoch != info_.epoch)
      throw Error(
          ErrorKind::mismatch,
          fmt::format("what should be rank {} of {} in epoch {} says that it is rank {} of {} in epoch {}; give "
                      "every worker a rank of its own and the same world size",
                      peer, info_.world, info_.epoch, header.rank, header.world, header.epoch),
          peer);
  }

  [[noreturn]] static void throw_foreign(Rank peer, int process) {
    throw Error(ErrorKind::unreachable,
                fmt::format("process {} does not hold the shared memory that rank {} published, so that rank has ended "
                            "and its number was used again; start the job anew",
                            process, peer),
                peer);
  }

  void wait_until_attached(std::chrono::steady_clock::time_point deadline) const {
    auto& attached = own_header().attached;
    const auto others = static_cast<std::uint32_t>(info_.world - 1);
    for (auto count = attached.load(); count < others; count = attached.load()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      info_.check_peers();
      if (left > left.zero()) {
        transport::futex_wait(attached, count, std::min<std::chrono::nanoseconds>(left, WorldInfo::check_interval));
      } else if (const auto missing = first_unattached()) {
        throw Error(
            ErrorKind::timeout,
            fmt::format("rank {} did not attach to the shared memory of rank {} in time; see why it is late, or "
                        "allow more time",
                        *missing, info_.rank),
            *missing);
      }
    }
  }

  std::optional<Rank> first_unattached() const {
    for (Rank peer = 0; peer < info_.world; ++peer)
      if (peer != info_.rank && section_of(peer).attached.load() == 0) return peer;
    return std::nullopt;
  }

  const WorldInfo info_;
  const InboxLayout layout_;
  MemoryFile file_;
  ShmAddress address_;
  const std::shared_ptr<SharedMemory> memory_ = std::make_shared<SharedMemory>();
};

}  // namespace

std::unique_ptr<Endpoint> shm_endpoint(const WorldInfo& info, const std::string& node) {
  if (info.world < 1 || info.rank < 0 || info.rank >= info.world)
    throw Error(ErrorKind::usage,
                fmt::format("there is no rank {} in a world of {}; ranks count from 0", info.rank, info.world));
  return std::make_unique<ShmEndpoint>(info, node);
}

}  // namespace ranvier
