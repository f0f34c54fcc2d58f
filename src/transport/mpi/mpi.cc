// The mpi transport: each lane between two ranks is a tag of MPI's point-to-point messages.
//
// A tag names the endpoint that receives (one for each communicator of its process), who sends, and the lane. So ranks
// meet without any call in which all of them must be, communicators never see each other's messages, and what was sent
// to one that has gone stays unread. Ranks may even be threads of one process, as in tests.
#include <fmt/format.h>
#include <mpi.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/host.h"
#include "ranvier/error.h"
#include "transport/module.h"
#include "transport/mpi/mpi_address.h"
#include "transport/mpi/mpi_collectives.h"
#include "transport/mpi/mpi_library.h"
#include "transport/mpi/mpi_requests.h"
#include "transport/published_address.h"
#include "transport/tagged_transport.h"

namespace ranvier::transport {
namespace {

// MPI wakes nobody: whoever waits looks again after a pause, which doubles while nothing comes.
constexpr std::chrono::nanoseconds first_pause = std::chrono::microseconds(10);
constexpr std::chrono::nanoseconds longest_pause = std::chrono::milliseconds(1);

// Between processes of one host MPI reads large messages where they lie, and larger ones cost it less. Over TCP it asks
// the receiver first for what has more than 64 KiB with its header (Open MPI: btl_tcp_eager_limit), and both the
// question and the answer wait behind all data that are under way: the two directions of a line then take turns.
constexpr std::size_t slice_inside = 128 << 10, slice_between = 32 << 10;

int tag(int first, Rank from, Lane lane) { return first + from * static_cast<int>(lane_count) + lane; }

class MpiMessages final : public TaggedMessages {
 public:
  MpiMessages(Rank rank, std::vector<MpiAddress> peers, MPI_Comm communicator,
              std::unique_ptr<VendorCollectives> collectives)
      : rank_(rank), peers_(std::move(peers)), communicator_(communicator), collectives_(std::move(collectives)) {}

  bool may_be_called() const override { return library_.may_be_called(); }

  Transfer send(Rank to, Lane lane, ConstBytes message, bool until_taken) override {
    const MpiAddress& peer = peers_[static_cast<std::size_t>(to)];
    MPI_Request request = MPI_REQUEST_NULL;
    const auto lock = library_.calls();
    MpiLibrary::check(
        (until_taken ? MPI_Issend : MPI_Isend)(message.data(), static_cast<int>(message.size()), MPI_BYTE, peer.process,
                                               tag(peer.first_tag, rank_, lane), communicator_, &request),
        until_taken ? "MPI_Issend" : "MPI_Isend");
    return settle(request);
  }

  // A lane is polled by one thread at a time, so that what was found here is what receive() gets.
  std::optional<std::size_t> arrived(Rank from, Lane lane) override {
    int found = 0, bytes = 0;
    MPI_Status status;
    const auto lock = library_.calls();
    MpiLibrary::check(
        MPI_Iprobe(peers_[static_cast<std::size_t>(from)].process, own_tag(from, lane), communicator_, &found, &status),
        "MPI_Iprobe");
    if (found == 0) return std::nullopt;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    return static_cast<std::size_t>(bytes);
  }

  Transfer receive(Rank from, Lane lane, Bytes into) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto lock = library_.calls();
    MpiLibrary::check(
        MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE, peers_[static_cast<std::size_t>(from)].process,
                  own_tag(from, lane), communicator_, &request),
        "MPI_Irecv");
    return settle(request);
  }

  bool over(Transfer transfer) override {
    const auto lock = library_.calls();
    return requests_.over(transfer);
  }

  // MPI takes nothing back: MPI_Cancel of a send is deprecated, and of a receive that has its message impossible.
  bool abandon(Transfer transfer) override {
    try {
      return over(transfer);
    } catch (const Error&) {
      return true;  // it failed, and is forgotten
    }
  }

  void sleep(std::chrono::nanoseconds limit, const Fd& interrupt, int idle) override {
    const auto pause = std::min({limit, longest_pause, first_pause * (1 << std::min(idle, 10))});
    const timespec time{.tv_sec = 0, .tv_nsec = std::max<std::int64_t>(pause.count(), 0)};
    pollfd poll{.fd = interrupt.get(), .events = POLLIN, .revents = 0};
    ppoll(&poll, 1, &time, nullptr);
  }

  VendorCollectives* vendor() override { return collectives_.get(); }

 private:
  int own_tag(Rank from, Lane lane) const { return tag(peers_[static_cast<std::size_t>(rank_)].first_tag, from, lane); }

  // Most are over at once; those need no number.
  Transfer settle(MPI_Request request) {
    int done = 0;
    MpiLibrary::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0 ? none : requests_.add(request);
  }

  MpiLibrary& library_ = MpiLibrary::get();
  const Rank rank_;
  const std::vector<MpiAddress> peers_;
  const MPI_Comm communicator_;
  const std::unique_ptr<VendorCollectives> collectives_;
  MpiRequests requests_;
};

class MpiEndpoint final : public Endpoint {
 public:
  explicit MpiEndpoint(const WorldInfo& info) : info_(info) {
    const auto lock = library_.calls();
    own_ = {.host = library_.size() == 1 ? fmt::format("{}.{}", host_identity(), getpid()) : host_identity(),
            .size = library_.size(),
            .process = library_.rank(),
            .first_tag = library_.new_tags(std::int64_t{info.world} * lane_count),
            .cpus = CpuSet::own()};
  }

  std::string address() const override { return own_.text(); }

  std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                     std::chrono::steady_clock::time_point deadline) override {
    auto peers = parse_addresses<MpiAddress>("mpi", info_.world, addresses);
    std::vector<int> processes;
    SharedCores cores;
    std::size_t slice = slice_inside;
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      const MpiAddress& peer = peers[rank];
      if (peer.size != own_.size || (own_.size == 1 && peer.host != own_.host))
        throw Error(ErrorKind::config,
                    fmt::format("ranks {} and {} are not processes of one MPI job (theirs have {} and {} processes); "
                                "start them with mpirun",
                                info_.rank, rank, own_.size, peer.size),
                    static_cast<Rank>(rank));
      if (peer.host == own_.host)
        cores.add_rank(peer.cpus);
      else
        slice = slice_between;
      processes.push_back(peer.process);
    }
    const MPI_Comm communicator = library_.communicator(deadline, info_.check_peers);
    await_all(peers, communicator, deadline);
    auto collectives = mpi_collectives(communicator, processes, peers.front().first_tag % 32768);
    return tagged_transport(
        {.name = "mpi",
         .rank = info_.rank,
         .world = info_.world,
         .ranks_per_core = cores.ranks_per_core(),
         .slice_bytes = slice},
        std::make_unique<MpiMessages>(info_.rank, std::move(peers), communicator, std::move(collectives)));
  }

 private:
  // MPI makes a communicator of some processes without a deadline; so no rank begins with that before all have come
  // here. In round k each hears from the one 2^k before it (D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for
  // Barrier Synchronization", 1988), by a message in front of all others of the first lane.
  void await_all(const std::vector<MpiAddress>& peers, MPI_Comm communicator,
                 std::chrono::steady_clock::time_point deadline) {
    const Rank world = info_.world;
    for (Rank distance = 1; distance < world; distance *= 2) {
      const Rank to = (info_.rank + distance) % world, from = (info_.rank + world - distance) % world;
      const MpiAddress& next = peers[static_cast<std::size_t>(to)];
      MPI_Request sending = MPI_REQUEST_NULL, hearing = MPI_REQUEST_NULL;
      {
        const auto lock = library_.calls();
        MpiLibrary::check(
            MPI_Isend(nullptr, 0, MPI_BYTE, next.process, tag(next.first_tag, info_.rank, 0), communicator, &sending),
            "MPI_Isend");
        MpiLibrary::check(MPI_Request_free(&sending), "MPI_Request_free");
        MpiLibrary::check(MPI_Irecv(nullptr, 0, MPI_BYTE, peers[static_cast<std::size_t>(from)].process,
                                    tag(own_.first_tag, from, 0), communicator, &hearing),
                          "MPI_Irecv");
      }
      hear(hearing, from, deadline);
    }
  }

  void hear(MPI_Request request, Rank from, std::chrono::steady_clock::time_point deadline) {
    try {
      while (!is_over(request)) {
        if (std::chrono::steady_clock::now() >= deadline)
          throw Error(ErrorKind::timeout,
                      fmt::format("rank {} has waited too long for rank {} to come to transport mpi; that one has not "
                                  "come, or waits for another one there",
                                  info_.rank, from),
                      from);
        info_.check_peers();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    } catch (...) {
      const auto lock = library_.calls();
      if (request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
      throw;
    }
  }

  bool is_over(MPI_Request& request) {
    int done = 0;
    const auto lock = library_.calls();
    MpiLibrary::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

  MpiLibrary& library_ = MpiLibrary::get();
  const WorldInfo info_;
  MpiAddress own_;
};

}  // namespace
}  // namespace ranvier::transport

extern "C" const ranvier::transport::TransportModule ranvier_transport_module{
    .version = RANVIER_VERSION,
    .endpoint = [](const ranvier::WorldInfo& info, const ranvier::transport::ModuleOptions&)
        -> std::unique_ptr<ranvier::Endpoint> { return std::make_unique<ranvier::transport::MpiEndpoint>(info); }};
