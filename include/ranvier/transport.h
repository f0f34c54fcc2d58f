// A world of ranks that exchange bytes. A transport never blocks (but in wait), never calls back, and knows nothing of
// collectives: the executor pushes and pulls at it. The shape was measured; see
// docs/decisions/0002-polled-transport.md.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/security.h"
#include "ranvier/types.h"

namespace ranvier {

// A numbered channel between each pair of ranks. Bytes on one lane arrive in order, complete and exactly once; lanes do
// not wait for one another.
using Lane = std::uint8_t;

// Collectives in flight together take turns on lanes 0 … ordinary_lanes-1; urgent ones have the next, a lane for each
// class, the most urgent one last; and messages (send/recv) have the last of all.
inline constexpr Lane ordinary_lanes = 4;
inline constexpr Lane urgent_lanes = 3;
inline constexpr Lane collective_lanes = ordinary_lanes + urgent_lanes;
inline constexpr Lane message_lane = collective_lanes;
inline constexpr Lane lane_count = collective_lanes + 1;

// Which life of a communicator bytes belong to. Recovery starts the next one; what is left of older ones is refused.
using Epoch = std::uint16_t;

struct TransportTraits {
  std::string_view name;       // "tcp", "shm", …
  std::size_t slice_bytes;     // best size of one send; larger ones are accepted in parts
  std::size_t buffered_bytes;  // a send of so many is taken before the receiver reads, on each lane: eager credit
  int ranks_per_core;          // on this host, rounded up: of more than one, what costs one work costs all of them
  int polls_before_yield;      // how long a waiter may spin before it gives its core away, …
  int polls_before_wait;       // … and how long before it calls wait(); in polls

  bool crowded() const { return ranks_per_core > 1; }
};

// What a transport can do whose ranks read each other's memory: bodies in such memory are not copied to be sent.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // What is lent costs two visits to the other core's cache where a copy costs one: not worth it for less.
  static constexpr std::size_t least_lent = 4 << 10;
  // Nor, where every rank has a core of its own and copies while the other one does, for operations that have less than
  // this for every peer: of 64 KiB, 4.1 us lent and 2.6 copied. Ranks that share cores save the copy's work: 12 for 21
  // us.
  static constexpr std::size_t least_to_one = 512 << 10;

  // Zero-filled, begins on a page, may outlive the transport. Any thread may call. Throws Error{config} where there is
  // no more.
  virtual std::shared_ptr<std::byte[]> allocate(std::size_t bytes) = 0;

  // Transport::try_send, but a body of `least_lent` bytes or more within allocated memory is lent instead of copied,
  // whole: the peer's views of it are that memory, which stays as it is until the peer has released it. `asks`: any
  // other may be answered, see AnswersInPlace::try_ask.
  virtual std::size_t try_lend(Rank to, Lane lane, ConstBytes head, ConstBytes body, bool asks) = 0;

  // How many bytes were accepted for `to` on `lane` since, and with, the oldest body that is still lent; 0 if none is.
  virtual std::size_t lent(Rank to, Lane lane) = 0;
};

// What a transport can do whose ranks write to each other's memory: a sum goes back in the memory of the message that
// it was made of. So every line of it goes from one core to the other and back, instead of one line there and another
// one back, either of which its writer must first take from the core that has read it: half of what two ranks'
// all_reduce costs where it is their cores that limit it.
class AnswersInPlace {
 public:
  virtual ~AnswersInPlace() = default;

  // How many messages to one peer on one lane may be unanswered, or their answers unread: further sends wait. A send of
  // up to TransportTraits::slice_bytes is one message; compile() rests on it.
  virtual std::uint32_t unanswered() const = 0;

  // Transport::try_send of what the peer may answer.
  virtual std::size_t try_ask(Rank to, Lane lane, ConstBytes head, ConstBytes body) = 0;

  // The end of the last view from `to`, to write the answer there and give it to answer() next. Empty where that cannot
  // be: it was not asked for, `body` is not all that is left of the message, or there is no room to say that it is
  // answered; then it is received and sent as ever.
  virtual Bytes answerable(Rank to, Lane lane, ConstBytes body) = 0;

  // The next bytes to `to`: `head`, of at most 64 bytes, and `body`, from answerable(). All of the view is released.
  virtual void answer(Rank to, Lane lane, ConstBytes head, Bytes body) = 0;
};

// What a transport can do that leaves it to its caller whether what was lost is worth waiting for: messages that are
// sent once, whatever becomes of them, paced and counted as all else on their path.
class PartialMessages {
 public:
  virtual ~PartialMessages() = default;

  // A message is lost by pieces of so many bytes; its last one may be shorter.
  static constexpr std::size_t piece_bytes = 1024;
  static constexpr std::size_t pieces_of(std::size_t bytes) { return (bytes + piece_bytes - 1) / piece_bytes; }

  struct Pieces {
    std::size_t first = 0, count = 0;
  };
  // Sends these pieces of `message` once and behind what lanes have accepted; its others follow by other calls.
  // `ticket` names it, to both sides, and is used once a pair; they count up. What was sent stays as it is until
  // withdraw(): what has not left by then does not leave.
  virtual void send_once(Rank to, std::uint64_t ticket, ConstBytes message, Pieces pieces) = 0;
  virtual void withdraw(Rank to, std::uint64_t ticket) = 0;
  // Likewise, but what is lost of them is sent again, until all of the message is there. They stay as they are while
  // anybody else holds `memory`, in which it is.
  virtual void send_whole(Rank to, std::uint64_t ticket, ConstBytes message, std::shared_ptr<const void> memory,
                          std::span<const Pieces> pieces) = 0;

  // This rank is going to look at the message of `bytes` from `from`: nothing of it is held back from now on, however
  // long messages of lower tickets take. Any thread; what is wrong, arrival() throws.
  virtual void expect(Rank from, std::uint64_t ticket, std::size_t bytes) = 0;

  // How far a message has come.
  struct Arrival {
    using Time = std::chrono::steady_clock::time_point;
    std::size_t pieces = 0;
    Time first_at{}, newest_at{};           // of its pieces; the epoch where there is none yet
    std::size_t end = 0;                    // of them; what is before it and not here is late, or lost
    bool last_is_here = false;              // its last piece
    std::chrono::nanoseconds reordering{};  // how late pieces of this path may be and not be lost
  };
  // Of the message of `bytes` from `from`. Throws Error{mismatch} where it has another size.
  virtual Arrival arrival(Rank from, std::uint64_t ticket, std::size_t bytes) = 0;

  // Which of its pieces are here, 1 or 0; the message, where those pieces stay until they are given back.
  virtual ConstBytes look_at(Rank from, std::uint64_t ticket, std::size_t bytes,
                             std::vector<std::uint8_t>& arrived) = 0;

  struct Message {
    std::vector<std::byte> bytes;       // whatever, where a piece is missing
    std::vector<std::uint8_t> arrived;  // by piece, 1 or 0
    std::size_t pieces = 0;             // that have
  };
  // As much of it as has come by now; what comes later is dropped.
  virtual Message take(Rank from, std::uint64_t ticket, std::size_t bytes) = 0;
  // Its memory may be used again.
  virtual void give_back(Rank from, Message) = 0;
};

// A collective as the library beneath a transport is given it. Counts are elements: of the whole vector for all_reduce,
// reduce and broadcast, else of one rank's part.
struct VendorCall {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  const void* input = nullptr;  // may be `output`, or its own part of it
  void* output = nullptr;
  std::size_t count = 0;
  Rank root = 0;
};

// The collectives that a transport's library has itself ("--algorithm vendor"). All ranks start the same ones in the
// same order. The library cannot take one back: once it has begun, its memory must stay until it is over.
class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;

  using Transfer = std::uintptr_t;

  // Why the library cannot do it; empty if it can. The same on all ranks.
  virtual std::string refusal(const VendorCall&) const = 0;
  virtual Transfer start(const VendorCall&) = 0;
  // Whether it is over; it is then forgotten. Throws what it failed with.
  virtual bool over(Transfer) = 0;
};

// Of the packets of all its links, since the start.
struct PacketCounts {
  std::uint64_t sent = 0;
  std::uint64_t lost = 0;     // of them: sent again, or given up where that is tolerated
  std::uint64_t refused = 0;  // arrived here and were not taken: damaged, forged, or a stranger's
};

// What a caller waits for: so many bytes that he has not seen yet, without which he cannot go on, and up to `most` that
// come with them.
struct Expected {
  Rank from = -1;
  Lane lane = 0;
  std::size_t bytes = 0;  // 0: it is not known
  std::size_t most = bytes;
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual Rank rank() const = 0;
  virtual Rank world() const = 0;
  virtual TransportTraits traits() const = 0;

  // Offers `head` followed by `body` as the next bytes to `to`; returns how many of them (counted over both) were
  // accepted, 0 … all. A head of at most 64 bytes is accepted whole or not at all, and copied before this returns; the
  // body must stay as it is until sent(). Two parts save the executor from copying a header in front of its payload;
  // most calls have an empty head.
  virtual std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) = 0;

  // Whether all bytes accepted so far for `to` on `lane` may be overwritten by the caller.
  virtual bool sent(Rank to, Lane lane) = 0;

  // The next bytes from `from`: either a view of the transport's own memory (any length; valid until release), or a
  // prefix of `into`, filled (then view.data() == into.data(), at most into.size() bytes, and nothing to release).
  // Empty when nothing has arrived. With an empty `into` always a view; one that was not used up comes again, and is
  // longer if more has arrived.
  virtual ConstBytes try_recv(Rank from, Lane lane, Bytes into) = 0;

  // The first `bytes` of the last view were used; the next view starts behind them.
  virtual void release(Rank from, Lane lane, std::size_t bytes) = 0;

  // Sleeps until something may move, interrupt() is called, or `limit` passes. May return early for no reason.
  virtual void wait(std::chrono::nanoseconds limit) = 0;

  // That nothing can be done before each of these has come, in part or whole, as far as the caller knows: whether they
  // take so long, by how fast bytes have come lately, that he had better wait() than ask again. The next wait(), and no
  // other, may then sleep until a good part of one is there. Transports that cannot tell say no.
  virtual bool expect(std::span<const Expected>) { return false; }

  // Ends a present or the next wait(). The only call that is safe from any thread.
  virtual void interrupt() = 0;

  // Null where ranks share no memory.
  virtual PeerMemory* peer_memory() { return nullptr; }
  virtual AnswersInPlace* answers_in_place() { return nullptr; }

  // Null where every byte arrives, or pieces do not fit the path's packets.
  virtual PartialMessages* partial_messages() { return nullptr; }

  // Null where its library has no collectives, or none for these ranks.
  virtual VendorCollectives* vendor_collectives() { return nullptr; }

  // None where others count them: the kernel, a library. Safe from any thread.
  virtual std::optional<PacketCounts> packet_counts() const { return std::nullopt; }

  // When anything last came from that rank, which is asked for a sign of life, to come later; none where only the
  // kernel or a library would know. Safe from any thread.
  virtual std::optional<std::chrono::steady_clock::time_point> last_sign(Rank) { return std::nullopt; }

  // Gives up every transfer: on return no memory of callers is or will be touched, and the calls above throw or do
  // nothing. Recovery makes a new transport with the next epoch.
  virtual void cancel() = 0;
  // The same at an orderly end: what was accepted before still arrives, which the destructor waits for where the other
  // side takes it. After cancel() it waits for nobody.
  virtual void close() { cancel(); }

 protected:
  Transport() = default;
};

// What all transports need to know to meet.
struct WorldInfo {
  Rank rank = 0;
  Rank world = 1;
  Epoch epoch = 0;
  // Every check_interval or so an endpoint that waits for its peers calls this, which throws when one of them is lost.
  std::function<void()> check_peers = [] {};
  static constexpr std::chrono::milliseconds check_interval{100};
};

// A transport that listens but has not yet met its peers. address() is what the others must know; it goes through the
// Store. connect() takes everybody's, by rank, and returns when all links stand, or throws naming who was not reached.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual std::string address() const = 0;
  virtual std::unique_ptr<Transport> connect(const std::vector<std::string>& addresses,
                                             std::chrono::steady_clock::time_point deadline) = 0;
};

// What carries bytes between ranks of one host, and what between hosts; one of them may be empty.
struct TransportChoice {
  std::string inside = {};
  std::string between = {};
  double loss = 0;  // that gradients may suffer: the share of each sender's part that a receiver does not wait for
  std::uint64_t resync = 0;  // steps after which ranks that may differ meanwhile are realigned; 0: they never differ
};
inline constexpr std::array<std::string_view, 6> transport_names{"shm", "tcp", "udp", "mpi", "ucx", "grpc"};
// "tcp" between all ranks, "shm" where all share a host, "shm+mpi" shm within hosts and mpi between them, and "auto",
// which is "shm+tcp". "udp:loss=0.01" is udp whose sums of gradients do not wait for the last hundredth (Request::
// tolerates_loss), "udp:loss=0.01,resync=100" one whose ranks may differ meanwhile (Request::may_differ). Where all
// ranks share a host, or no two do, one of a pair serves alone. Throws Error{usage}.
TransportChoice parse_transport(std::string_view name);

// Sockets of its own for each pair and lane, so that the kernel's flow control is the credit of each lane.
// `interface_address`: IPv4 or IPv6 address to listen on and publish, or the name of an interface, whose first one is;
// empty publishes all addresses of this host.
// `sockets`: of each pair and lane, 1 to most_sockets, the same on all ranks. More than one helps where each of them is
// held below what the line carries: by a cloud's limit for a flow, or by buffers smaller than rate times round trip.
inline constexpr int most_sockets = 16;
struct TcpOptions {
  std::string interface_address = {};
  int sockets = 1;
  PortRange ports = {};  // to listen on one of
  SecurityOptions security = {};
};
std::unique_ptr<Endpoint> tcp_endpoint(const WorldInfo&, const TcpOptions& = {});

// tcp for networks where nothing but HTTP/2 passes: each of its connections carries a call of gRPC. Between hosts, and
// with `encrypt_everywhere`, inside TLS by certificates that name the host "ranvier"; without certificates ranks of
// other hosts are refused, unless `insecure` says that nothing need be encrypted.
std::unique_ptr<Endpoint> grpc_endpoint(const WorldInfo&, const TcpOptions& = {});

// Datagrams over one UDP port a process, made reliable and paced by ranvier itself, for paths that lose packets without
// being full: a random loss costs its own share of the rate (docs/transports.md).
struct UdpOptions {
  std::string interface_address = {};  // see TcpOptions
  PortRange ports = {};                // to receive on one of
  SecurityOptions security = {};       // datagrams are encrypted where tcp would be TLS, with keys agreed on in TLS
  // A rank that acknowledges nothing for so long counts as lost: something on the way drops UDP.
  std::chrono::milliseconds unanswered_limit = std::chrono::seconds(10);
};
std::unique_ptr<Endpoint> udp_endpoint(const WorldInfo&, const UdpOptions& = {});

// Rings of slices in memory that processes of one host share. No name is left in the file system at any time.
// `node`: ranks of different names are on different hosts, though they run on one; to try on one machine what several
// do.
std::unique_ptr<Endpoint> shm_endpoint(const WorldInfo&, const std::string& node = {});
// By rank the host of each address, equal for processes that could map each other's rings (same host, user, process
// namespace and node). Empty for an address that is none of shm.
std::vector<std::string> shm_hosts(const std::vector<std::string>& shm_addresses);

// The transports below stand in libraries of their own that are opened when they are asked for
// (src/transport/module.h); where the build or the machine lacks one, they throw Error{config} that says what to
// install.

// Why this build or machine lacks that transport; empty if it has it. Loads the library of one that has one.
std::string missing_transport(std::string_view name);

// MPI's messages between the processes that mpirun, or another launcher of MPI, has started: whatever fabric MPI knows.
// Starts MPI where the program has not, and ends it with the process.
std::unique_ptr<Endpoint> mpi_endpoint(const WorldInfo&);

// Tagged messages over UCX's UCP: RDMA, shared memory or TCP, whichever UCX finds best (UCX_TLS and UCX_NET_DEVICES
// choose).
struct UcxOptions {
  std::string interface_address = {};  // see TcpOptions; empty: all that UCX finds
  PortRange ports = {};                // on which UCX listens where it uses TCP, one for each interface
};
std::unique_ptr<Endpoint> ucx_endpoint(const WorldInfo&, const UcxOptions& = {});

// A world inside one process, its ranks threads; the same rings as shm on plain memory. Result: one transport a rank.
std::vector<std::unique_ptr<Transport>> loopback_world(Rank world);

// `inner`, with sending held to `bytes_per_second` per rank by a token bucket: tries a slow network on one machine.
std::unique_ptr<Transport> paced(std::unique_ptr<Transport> inner, double bytes_per_second);

}  // namespace ranvier
