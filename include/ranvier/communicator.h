// The ranks of one job and what they can do together. This is the class that programs use; everything else in ranvier
// stands behind it.
//
//   auto store = ranvier::file_store("/tmp/my-job");
//   auto comm = ranvier::Communicator::connect(*store, rank, world);
//   comm->all_reduce(gradients, {.op = ReduceOp::average, .timeout = 30s});
//
// All ranks call the same collectives in the same order, with the same sizes; a rank that does not is named in the
// error that every rank then gets. After an error the communicator is finished, and each later call that is between
// ranks throws that same error; but for Error{usage} of a request that makes no sense, of which no other rank has
// heard. Threads: every member may be called from any thread, but the order of collectives must be the same on all
// ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ranvier/cost.h"
#include "ranvier/store.h"
#include "ranvier/transport.h"
#include "ranvier/tuning.h"
#include "ranvier/types.h"

namespace ranvier {

namespace engine {
class Siblings;
}
// For CommunicatorOptions::siblings.
std::shared_ptr<engine::Siblings> make_siblings();

struct CommunicatorOptions {
  std::string transport = "auto";  // shm within hosts and tcp between them; see parse_transport
  std::string algorithm = "auto";  // for collectives that name none themselves: "ring", "torus:2x4", …; or
                                   // "vendor": those of the transport's library where it has them (mpi)
  std::string tuning = {};         // a file with what "auto" chooses (ranvier/tuning.h), the same on all ranks;
                                   // with `learn` that of rank 0, which all follow and the others need not have
  // How "auto" chooses where that file has no row: by a model of the links, measured when the ranks meet, and by trials
  // of what that cannot tell apart (together 0.1 to 0.5 s on one host, less where links are slow; docs/decisions/0021);
  // false: by one that is the same in every run, so that float sums are as well.
  bool measure = true;
  // Corrects what "auto" chooses, where that file has no row, by how long all_reduce, all_gather and reduce_scatter
  // take while the program runs: now and then operations of a shape that comes often are run by another algorithm,
  // which is kept if it is faster, by all ranks alike. Sums of floats then change their last bits in the middle of a
  // run; an operation that is started, rather than run, is left as it is, as are all of its shape. Rank 0 adds what was
  // learned to the file of its `tuning` when it leaves, which need not exist before; a group (world_ranks) keeps
  // nothing. See docs/decisions/0015.
  bool learn = false;
  // A network that data has to keep to, as make_topology takes it: "torus:2x4". An algorithm that would have ranks
  // forward for others is then refused, and not chosen where there is another. Empty: every rank reaches every other.
  std::string topology = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(30);       // of each operation
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);   // for all ranks to arrive
  std::chrono::milliseconds suspect_after = std::chrono::seconds(1);  // a silent peer is logged …
  std::chrono::milliseconds dead_after = std::chrono::seconds(3);     // … and then given up
  std::string interface_address = {};                                 // see TcpOptions
  int tcp_sockets = 1;                                                // a link, see TcpOptions::sockets
  std::string node = {};                                              // see shm_endpoint
  std::string purpose = {};          // what ranks meet for, in a program's own words: the same on all of them
  double link_bytes_per_second = 0;  // > 0 paces this rank's sending
  PortRange ports = {};              // each rank listens on one of them while the ranks meet
  SecurityOptions security = {};     // of connections between hosts
  Epoch epoch = 0;
  bool background_progress = true;  // a thread drives operations that nobody waits for
  // Called now and then by each thread that has waited for an operation for a while. What it throws, a std::exception,
  // comes out of that wait, and ends the communicator first, as abort() does: for signals, see docs/decisions/0040.
  // Also by who waits for ranks to meet in a store.
  std::function<void()> check_interrupt = {};
  ElementName element_name = nullptr;  // what errors call the element types of labels; null: by their number
  std::string join_timeout_name = "join_timeout, --join-timeout";  // what errors call it where ranks do not come
  // Of a group, by rank: its number in the world, by which errors name it too. Empty: it is no group. split() sets it.
  std::vector<Rank> world_ranks = {};
  // Of a group, where errors speak of several: the same on all of its ranks, and another one than other groups of this
  // process have. split() makes one up.
  std::string name = {};
  // The communicators of this process that know of each other: where an operation takes longer than its timeout, errors
  // say in which of them the rank that is waited for is instead. split() hands it on; connect() makes one of its own
  // where there is none.
  std::shared_ptr<engine::Siblings> siblings = {};
};

// Calls of a binding that are made of several: errors and the flight record name them, and ranks compare them.
enum class Composite : std::uint8_t { none, sparse_all_reduce, monitored_barrier };

// One collective, as data. Named members of Communicator fill it in; bindings and tools do so directly.
struct Request {
  Collective collective = Collective::all_reduce;
  ConstTypedSpan input = {};
  TypedSpan output = {};
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  // Elements per rank where they differ (all_gather: of every rank's part; all_to_all: of every part sent and received;
  // gather, scatter, reduce_scatter: of every rank's part), or per direction (neighbor_exchange). Empty: all alike. All
  // ranks give them, or none does, also who has parts of one size: of all_to_all nobody knows the others' sizes, and of
  // gather and scatter who is not the root may have to pass on parts of others.
  std::span<const std::size_t> input_splits = {};
  std::span<const std::size_t> output_splits = {};
  std::string_view algorithm = {};  // empty: CommunicatorOptions::algorithm
  std::optional<std::chrono::milliseconds> timeout = {};
  // Of operations under way together, those of higher priority move first, slice by slice. 1, 2, and 3 with all above
  // it, are classes of their own: one waits for no operation of another class to end, and for those of its own that
  // were called before it. The same on all ranks.
  int priority = 0;
  CallLabel label = {};
  Composite part_of = Composite::none;  // what an all_gather begins
  // The values are gradients: where the transport is "udp:loss=…", a large all_reduce of f32 by sum or average does not
  // wait for the last of them. A missing value counts as absent: the average is taken over the ranks whose packet
  // arrived, and a sum is the ranks times that. All ranks end with the same bits; an infinity or NaN makes the 1024
  // values around it NaN.
  bool tolerates_loss = false;
  // With that, where the transport is "udp:loss=…,resync=K": ranks may end with different values, since none waits for
  // averages that are late either, nor for a rank that is: it takes its own values in place of those that it lacks.
  // Whoever says so calls Communicator::realign every K steps with what those values went into.
  bool may_differ = false;
  // As long as the input, or empty: what of this rank's own values the result lacks, to be added to the next ones
  // (error feedback). Zeros where nothing was lost.
  std::span<float> lost = {};
};

// Of what sums that tolerate loss were waiting for, since the start.
struct LossCounts {
  std::uint64_t due = 0;      // pieces of 1 KiB from other ranks
  std::uint64_t missing = 0;  // of them
  LossCounts& operator+=(const LossCounts& more) {
    due += more.due;
    missing += more.missing;
    return *this;
  }
  double share() const { return due > 0 ? static_cast<double>(missing) / static_cast<double>(due) : 0; }
};

namespace engine {
class Operation;
}

// An operation under way. Dropping the handle does not stop it; the memory given to it must live until it is done.
class Work {
 public:
  Work() = default;  // of nothing, which is done
  explicit Work(std::shared_ptr<engine::Operation> operation) : operation_(std::move(operation)) {}

  // Waits, and drives the communicator meanwhile. Throws what the operation failed with.
  void wait();
  // Waits at most `limit`; false if the operation is still under way then (it goes on).
  bool wait_for(std::chrono::nanoseconds limit);
  // Waits for all of them; then throws what the first of those that failed failed with.
  static void wait_all(std::span<Work> all);
  bool done() const;
  // What it failed with; null while it runs and after success.
  std::exception_ptr error() const;
  // Calls `then` once it is done or has failed: at once if it already has, else from whichever thread finishes it, in
  // the middle of what others wait for. What `then` throws goes no further than stderr.
  void on_done(std::function<void()> then);
  // Its number among the collectives of its communicator, as errors have it; 0 for a message.
  std::uint32_t sequence() const;
  // The last operations of its communicator, as errors carry them; empty once that is gone.
  std::string flight_record() const;
  // Of a received message: who sent it. -1 otherwise.
  Rank source() const;
  // Of a received message: how long it was. 0 otherwise.
  std::size_t received_bytes() const;

 private:
  std::shared_ptr<engine::Operation> operation_;
};

struct CollectiveOptions {
  ReduceOp op = ReduceOp::sum;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string_view algorithm = {};
  int priority = 0;  // see Request
};

// Bytes and operations since the start, as this rank saw them.
struct Traffic {
  std::uint64_t bytes_sent = 0;  // payload handed to the transport
  std::uint64_t bytes_received = 0;
  std::uint64_t operations = 0;
};

class Communicator {
 public:
  static constexpr Rank any_rank = -1;

  // Meets the other ranks through `store` (needed only until this returns). Throws Error naming the ranks that did not
  // come within join_timeout.
  static std::unique_ptr<Communicator> connect(Store& store, Rank rank, Rank world,
                                               const CommunicatorOptions& options = {});
  // Instead of that, where this rank cannot: the others, who would wait for it, throw that it cannot take part, and
  // why. Waits for those who are late, as they would for it, for `join_timeout` of the options.
  static void decline(Store& store, Rank rank, Rank world, const std::exception& why,
                      const CommunicatorOptions& options = {});
  // Over a transport that already stands (loopback, simulated): no heartbeats, faults only by deadline.
  static std::unique_ptr<Communicator> over(std::unique_ptr<Transport> transport,
                                            const CommunicatorOptions& options = {});
  // As leave(), but what that would throw is logged. Other threads may be in the wait of a Work, and in no other call.
  // In a process that was forked off it does nothing, and calls throw Error{usage}: all of it stays with the parent.
  ~Communicator();
  // Tells the others that this rank leaves. Operations under way fail, whoever waits for them, and none can be started.
  // Throws Error{mismatch} if the ranks turn out to have called different collectives and no operation has said so.
  // Once is enough: after that nothing happens.
  void leave();

  Rank rank() const;
  Rank world() const;
  // What errors call a rank: "rank 3", or "rank 3 (1 of its group)".
  std::string rank_name(Rank rank) const;
  // What these of its ranks are called in the world: for CommunicatorOptions::world_ranks of a group of them.
  std::vector<Rank> world_ranks_of(const std::vector<Rank>& members) const;
  const CommunicatorOptions& options() const;
  std::string_view transport_name() const;
  Traffic traffic() const;
  // The share of gradients that may be lost, by CommunicatorOptions::transport; 0: none.
  double tolerated_loss() const;
  LossCounts losses() const;
  // None where the transport does not count them: all but udp and tcp.
  std::optional<PacketCounts> packet_counts() const;
  // Every so many steps ranks are to be realigned, by CommunicatorOptions::transport; 0: they never differ.
  std::uint64_t resync() const;
  // Their average becomes the data of all ranks, bit for bit. Between two calls a rank lacks at most the tolerated
  // share of all averages that were due to it since the last call, or between the two before.
  void realign(std::span<float> data);
  // Of traffic().bytes_sent, what went to `peer`.
  std::uint64_t bytes_sent_to(Rank peer) const;
  // The model of its links, measured or not, the same on all ranks.
  const LinkModel& links() const;
  // Whether they were measured, here or in the world that this is a group of; else they are ordinary ones.
  bool are_links_measured() const;
  // What "auto" follows: the rows it was given, what it has learned, and for all else the model of its links.
  TuningTable tuning() const;
  // From now on "auto" looks at `table` first. All ranks call this with the same table and nothing under way: to go on
  // where an earlier run stopped, with its choices and so with its bits.
  void follow(TuningTable table);

  // Zero-filled memory, aligned to a page, for vectors that collectives work on often: ranks on one host read each
  // other's where it lies, which saves a copy of most bytes that they send. Few and large pieces are best: with shared
  // memory a rank has at most 64 of them at a time. What an all_gather sends lies in its output, where it has been
  // copied from the input. Its size is this rank's own business. It is given back with the last reference, which may
  // outlive the communicator, but must not go while an operation works on it. Throws Error{config} where there is no
  // more.
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes);

  // The ranks that pass the same `color` form a new communicator, ordered by (key, rank). Every rank must call; a
  // negative color takes part and gets null.
  std::unique_ptr<Communicator> split(int color, int key = 0);
  // The ranks `members`, of which this is one and all of which call with the same ones and the same `tag`, form a new
  // communicator, in this order. Nobody else takes part, and ranks meet by messages of that tag, so that this may go on
  // in a thread of its own beside collectives (MPI_Comm_create_group). A tag serves one group. Throws Error{usage} for
  // members that make no group.
  std::unique_ptr<Communicator> create_group(const std::vector<Rank>& members, std::uint64_t tag);

  // ---- Collectives. Blocking; each sums up what it needs in its signature. One-span forms work in place.

  // data: n elements on every rank -> the reduction of all ranks' data, bit-identical everywhere.
  void all_reduce(TypedSpan data, const CollectiveOptions& = {});
  // n elements everywhere -> on root: the reduction. `output` is ignored on other ranks; input is left as it was.
  void reduce(ConstTypedSpan input, TypedSpan output, Rank root, const CollectiveOptions& = {});
  // root's data -> data everywhere.
  void broadcast(TypedSpan data, Rank root, const CollectiveOptions& = {});
  // n elements from each rank -> world*n elements everywhere, in rank order.
  void all_gather(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& = {});
  // world*n elements everywhere -> the n reduced elements that belong to this rank.
  void reduce_scatter(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& = {});
  // world*n elements -> world*n elements: part j of rank i becomes part i of rank j.
  void all_to_all(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& = {});
  // n elements from each rank -> world*n elements on root.
  void gather(ConstTypedSpan input, TypedSpan output, Rank root, const CollectiveOptions& = {});
  // world*n elements on root -> n elements everywhere.
  void scatter(ConstTypedSpan input, TypedSpan output, Rank root, const CollectiveOptions& = {});
  // With the neighbours of each rank in a grid, which `algorithm` names: "neighbor_exchange:8" is a line of 8 ranks,
  // "neighbor_exchange:2x4,periods=1x0" a grid of 2 rows of 4 whose first and last row are neighbours too; ranks are
  // numbered along the last dimension first. None named: CommunicatorOptions::algorithm if that is one, else a line.
  // 2k*n elements in k dimensions -> 2k*n elements: n to, and n from, the neighbour one down in dimension 0, one up in
  // dimension 0, one down in dimension 1, and so on, where down is the smaller coordinate. At an open border there is
  // no neighbour: its part of the input is not sent, and its part of the output keeps what it held. Parts of different
  // sizes: see Request. Input and output are separate memory. Throws Error{usage} for a grid that has not `world` ranks
  // and for parts that do not fit it, and Error{mismatch} where neighbours disagree on the grid or a part's size.
  // MPI_Neighbor_alltoallv on a Cartesian communicator.
  void neighbor_exchange(ConstTypedSpan input, TypedSpan output, const CollectiveOptions& = {});
  // Returns when every rank has called it.
  void barrier(const CollectiveOptions& = {});

  // Any collective, blocking or not. A barrier takes no memory.
  void run(const Request&);
  Work start(const Request&);
  // Counts a call that consists of messages as one of the collectives, so that ranks which call something else there
  // are told. Its number among them.
  std::uint32_t count(Composite call);

  // ---- Messages between two ranks. A receive takes the oldest message of its tag from its source; sizes and types
  // must agree. Messages neither order nor are ordered by collectives.
  void send(ConstTypedSpan data, Rank to, std::uint64_t tag = 0);
  void recv(TypedSpan data, Rank from, std::uint64_t tag = 0);
  Work start_send(ConstTypedSpan data, Rank to, std::uint64_t tag = 0,
                  std::optional<std::chrono::milliseconds> timeout = {}, CallLabel label = {});
  Work start_recv(TypedSpan data, Rank from_or_any, std::uint64_t tag = 0,
                  std::optional<std::chrono::milliseconds> timeout = {}, CallLabel label = {});
  // Takes a message of at most data's size, for what has a length that only its sender knows: Work::received_bytes.
  Work start_recv_at_most(TypedSpan data, Rank from_or_any, std::uint64_t tag = 0,
                          std::optional<std::chrono::milliseconds> timeout = {});

  // Throws what it has failed with, if it has: of a rank that is lost also where this one waits for nobody.
  void check_alive();
  // Fails every operation of every rank with `reason`. For a program that cannot go on. On return none of this rank's
  // operations touches its memory any more.
  void abort(const std::string& reason);

  // The last operations of this rank with their times, one per line: what errors carry.
  std::string flight_record() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranvier
