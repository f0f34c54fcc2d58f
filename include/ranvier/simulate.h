// How long a schedule takes on a network, by simulating the compiled programs that would run there: links with latency
// and bandwidth that the messages on them share fairly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/execution_trace.h"
#include "ranvier/schedule.h"
#include "ranvier/sync.h"
#include "ranvier/topology.h"
#include "ranvier/transport.h"
#include "ranvier/unequal_workers.h"
#include "ranvier/workload.h"

namespace ranvier {

// A rank whose host is lost at that time: it sends and reduces nothing any more. Messages that are leaving for it or
// from it are lost, and so are, in networks whose ranks forward for others, those that go through it.
struct Crash {
  Rank rank = 0;
  double at_ns = 0;
};

struct SimulateOptions {
  std::size_t slice_bytes = 1 << 17;  // as CompileOptions
  std::size_t ahead_bytes = 0;        // likewise
  std::size_t lead_bytes = 0;         // likewise
  std::size_t buffered_slices = 2;    // that a link takes before its sender waits
  // Messages of one rank leave one after another, in the order in which they were begun, as from one queue; else they
  // share its link evenly.
  bool in_turn = false;
  // Messages of several ranks share a receiver's link as a FIFO queue serves them: in proportion to what of each sender
  // stands in it, so much at most. 0: they share it evenly.
  std::size_t window_bytes = 0;
  double message_ns = 0;                  // what each message costs beside the latency of its links
  double reduce_bytes_per_ns = 0;         // how fast a rank reduces what arrives; 0: as fast as it arrives
  std::vector<double> slowdown = {};      // by rank: how many times slower it reduces and its links are; empty: 1
  bool fold = true;                       // ranks that do the same are simulated once
  Rank most_whole = 1024;                 // so many ranks that do not are simulated one by one, and more of them …
  std::size_t most_messages = 5'000'000;  // … where all send no more messages than these; others are refused
  std::vector<Rank> grid = {};  // how the world is divided into groups, the last dimension counted fastest: shifts
                                // along it may leave everything as it is, beside those that the topology has
  bool trace = false;
  std::optional<Crash> crash = {};  // nobody notices it: the others go on until they wait for ever
  // Asked again and again while it is simulated; once it says so that ends with Error{timeout}. None: never.
  std::function<bool()> enough = {};
  // As benchmarks time them: each rank starts the next operation when it has ended the one before, so that one overlaps
  // the tail of another and links have no rest. The time is of one of them; the first is left out.
  std::size_t in_a_row = 1;
  std::size_t at_once =
      1;                // so many such rows at the same time, as a communicator's lanes; the time is of one operation
  double apart_ns = 0;  // how much later each row begins than the one before
};

// A message on its way, from its first byte into the network to its arrival.
struct SimulatedMessage {
  Rank from = 0;
  Rank to = 0;
  std::uint32_t round = 0;
  double begin_ns = 0;
  double end_ns = 0;
  std::size_t bytes = 0;
};

struct SimulatedLink {
  std::string from = {};
  std::string to = {};         // `from` itself, where it is what messages share and is no way
  std::int32_t dimension = 0;  // as Link::dimension
  double utilisation = 0;      // bytes carried / (time x bandwidth)
  // Of a step: how long it is busy at its full rate, while computing waits for what it carries and beside computing.
  double exposed_ns = 0;
  double hidden_ns = 0;
};

// By multiples of `steps` along the dimensions of a grid, the last of which counts fastest.
struct Shifts {
  std::vector<Rank> dims = {};
  std::vector<Rank> steps = {};
  auto operator<=>(const Shifts&) const = default;
};

// How far a rank came in a run with a crash.
struct RankEnd {
  double ns = 0;          // when it did something for the last time
  bool finished = false;  // with its part of the operation
  Rank waits_for = -1;    // whose message, or whose link, it waits for if not
};

struct SimulatedRun {
  double ns = 0;  // with a crash: until the last rank ends or waits for ever
  bool folded = false;
  Rank ranks = 0;            // simulated; folded ones stand for as many each
  std::size_t messages = 0;  // likewise
  // As SimulateOptions has it, but where ranks are alike only with others: see simulate().
  std::size_t slice_bytes = 0;
  bool by_smaller_worlds = false;            // likewise: from a line through their times, and with their links
  std::size_t work = 0;                      // that simulating them was, on any machine: 10^7 take a tenth of a second
  std::vector<SimulatedLink> links = {};     // folded: one for each kind of link
  std::optional<Shifts> folded_by = {};      // which leave all as it is; none where whole, or by smaller worlds
  std::vector<SimulatedMessage> trace = {};  // folded: those of rank 0
  std::vector<RankEnd> ends = {};            // with a crash: by rank, that of the lost one included
};

// `count` elements as even_layout counts them, of element_bytes each, not in place. Folding needs a network and a
// schedule that look the same from every rank (rings, tori and stars do), or from many; it is looked for, and proven
// for worlds up to 256, beyond that on ranks all over the world. Where it takes other slices, of which all messages are
// made without a rest or as long as the longest of them, it is simulated with those; on a star algorithms that take as
// much longer for each doubling of the ranks by smaller worlds. Throws Error{usage} for other worlds than 1 to 2^20,
// for numbers of nothing and links that carry nothing, and where nothing can be folded for more ranks and messages than
// SimulateOptions has.
SimulatedRun simulate(const Schedule&, const Topology&, std::size_t count, std::size_t element_bytes,
                      const SimulateOptions& = {});

// ---- A step of training.

// The fastest algorithm up to a size; the last row of a table is for all beyond.
struct FastestAlgorithm {
  std::size_t up_to = 0;  // bytes
  std::string algorithm = {};
  double ns = 0;  // of the largest size that was simulated
};

struct StepPrediction {
  double step_ns = 0;
  double compute_ns = 0;
  double idle_ns = 0;                     // a pipeline that fills and drains, beside what it waits for then
  double communication_ns = 0;            // of all collectives, one after another
  double exposed_communication_ns = 0;    // what of it computing does not hide
  std::vector<SimulatedLink> links = {};  // over the whole step
  struct Interval {
    std::string name = {};
    bool computes = false;
    double begin_ns = 0;
    double end_ns = 0;
  };
  std::vector<Interval> timeline = {};
  std::vector<std::size_t> critical_path = {};  // of the timeline: each began when the one before it had ended, or as
                                                // soon as something inside it was ready
  struct RoleShare {
    std::string role = {};
    double communication_ns = 0;
    double exposed_ns = 0;
  };
  std::vector<RoleShare> roles = {};  // by the groups that communicate: their role, of a trace who they are
  // What each collective takes goes to the dimensions that it uses in proportion to how long their busiest links are
  // busy with it: where it goes through one after the other, that is the time in each. With the codec they add up to
  // the communication.
  struct DimensionShare {
    std::int32_t dimension = 0;
    double communication_ns = 0;
    double exposed_ns = 0;
  };
  std::vector<DimensionShare> dimensions = {};
  double codec_ns = 0;  // of encoding and decoding, in which no link is busy
  double exposed_codec_ns = 0;
};

// A step that is nothing but this run.
StepPrediction step_of(const SimulatedRun&);

// Switches that add up what arrives, at the rate of their links. Of a star and a fat tree each vector goes up once and
// comes down once, over every link of its tree; of a shape with switches (network.h) in the dimensions that have them,
// as by NetworkEffects::in_network_reduction, while ranks do the others by themselves. The schedule has the time of the
// sum of a vector of so many bytes, on that topology, and not the sum; nothing but the simulator takes it. Throws
// Error{usage} where ranks have no switch between them.
struct SwitchSum {
  Schedule schedule;
  Topology topology;
};
SwitchSum summed_by_switches(const Topology&, double bytes, std::size_t slice_bytes);
// As StepSimulation::algorithm: averages are made so.
inline constexpr std::string_view in_network = "in_network";

struct StepSimulation {
  // Of every all_reduce, as parse_algorithm takes it, or in_network. A division that it names, as torus:2x4, is that of
  // the data groups; other groups that it does not suit take the algorithm's own.
  std::string algorithm = "ring";
  std::vector<FastestAlgorithm> by_size = {};  // instead of it, where it has a row
  // Gradients go to the owners of their parts and back, as codes that cannot be added do: the pattern of direct.
  bool averages_by_owners = false;
  double bucket_bytes = 25e6;    // gradients go together once so many are ready, in the order in which they become so
  double gradient_scale = 1;     // bytes on the wire per byte of gradient
  double codec_ns_per_byte = 0;  // to encode and decode a byte of the wire, one after another
  std::size_t at_once = ordinary_lanes;  // buckets under way, as in a communicator
  SimulateOptions options = {};
};

// Gradients are averaged in buckets while the backward pass goes on, as PyTorch's DistributedDataParallel does, several
// at once, which share links; what tensor, expert and pipeline groups say to each other has to arrive before
// computing goes on, and has the links that it needs before buckets on their way. Ranks are numbered along tensor
// groups first, then experts, data and the pipeline, and all groups of a role communicate at the same time over the
// links that they share. Throws Error{usage} where the degrees do not multiply to the world.
StepPrediction simulate_step(const Workload&, const Topology&, const StepSimulation& = {});

// Throws Error{usage} for a world that the degrees of the workload, or a trace's groups, do not divide.
void check_world(const Workload&, Rank world);
void check_world(const ExecutionTrace&, const Topology&);
// Of the whole model; none where its degrees multiply to more than the world.
Rank replicas_in(const Workload&, Rank world);

// A recorded step by its own graph: whatever has ended what it waits for goes on, one computation at a time, and of
// each group one collective, one message out and one in, in the order of the operations. All ranks do as the recorded
// one: the others have groups like its own, and send as far as it does; a receive takes as long as the send at the
// other end, whose links are those of its own sends. Of StepSimulation buckets, codecs and lanes do not count;
// all_reduces of any group take the algorithm. Throws Error{usage} where nothing says which ranks a group has, or the
// world is not made of groups like it.
StepPrediction simulate_step(const ExecutionTrace&, const Topology&, const StepSimulation& = {});

// ---- Training by a synchronization policy.

// Long enough for the mean of any period that is worth the name.
inline constexpr std::uint64_t steps_of_a_policy = 10'000;

struct PolicySimulation {
  // Of everybody. 0: steps_of_a_policy; of parameter servers, whose messages are simulated one by one, as many as have
  // 200,000 pushes to single servers, at least 20.
  std::uint64_t steps = 0;
  UnequalWorkers unequal = {};  // replicas that are slow before their backward passes, …
  std::uint64_t seed = 0;       // … in the same steps as workers of training with this seed
  // Of the policy's levels, level 0 first, which group each replica is in, as place_levels gives them; none: of a
  // policy whose one level is everybody.
  std::vector<std::vector<int>> levels = {};
  // How an inner level averages gradients, which no codec makes smaller; none: like all else.
  std::optional<StepSimulation> inside = {};
  // Told to policies that go by how far replicas part (SyncEvent::spread), at every average the same.
  std::optional<double> spread = {};
};

struct PolicyPrediction {
  double step_ns = 0;  // the mean; of workers at their own pace the time for as many samples as all have in a step
  // Of averages among replicas: what steps without any would save the slowest replica. Of workers at
  // their own pace: the time of a step in which they do not compute.
  double exposed_communication_ns = 0;
  double rounds_per_step = 0;  // of servers: pushes; of peers: averages
  std::uint64_t steps = 0;
  StepPrediction usual = {};       // the kind of step that it takes most often
  bool averages_gradients = true;  // in those
  double between_steps_ns = 0;     // a step in the mean: waiting for averages of parameters
  struct Servers {
    double overtaken = 0;                   // pushes that a gradient finds applied since its worker pulled, in the mean
    std::uint64_t most_ahead = 0;           // steps that a worker began ahead of the slowest, at most
    Rank busiest = 0;                       // server, …
    double busy = 0;                        // … and for which share of the time it takes pushes and answers them
    std::vector<SimulatedLink> links = {};  // that pushes and answers go over; only names and utilisation
    std::vector<int> groups = {};           // by rank: who push together; of those that only serve, serves_only
  };
  std::optional<Servers> servers = {};
  struct Peers {
    double waits_ns = 0;       // a worker in a step, in the mean, for the average that it has asked for
    double fastest_share = 0;  // of all steps, that of the worker with the most
    Rank busiest = 0;          // of those that are asked, …
    double busy = 0;           // … and for which share of the time it averages with others
    std::vector<SimulatedLink> links = {};
  };
  std::optional<Peers> peers = {};
};
// Throws Error{usage} for a policy whose steps are not predicted: with levels that nobody has placed, or one that goes
// by what replicas hold where nothing is said of that.
void check_predictable(const SyncPolicy& policy, const PolicySimulation&);
// Throws Error{usage} where `unequal` names more replicas of the workload than there are, and for more than 4096.
void check_replicas(const Workload&, Rank world, const UnequalWorkers& unequal);
// Tells `policy`, a fresh one, of steps, and adds up what it asks for: steps whose gradients are averaged, in nodes or
// among everybody, steps without, averages of as many bytes by themselves, messages from each to one peer, and
// fragments that travel while steps go on. An average waits for the last of those that it is of. Computing is not
// slowed down by what travels.
//
// Of parameter servers it runs the gate that gives out samples (SampleGate), so that workers push and pull at their own
// pace, over links that they share, and wait where the policy's bound says so; groups by speed are formed as training
// forms them when it begins. Of peers it draws those that training draws. Throws as check_predictable and
// check_replicas do, and of servers and peers for a divided model, for collectives other than averages, and for more
// than 128 workers.
PolicyPrediction simulate_policy(SyncPolicy& policy, const Workload&, const Topology&, const StepSimulation&,
                                 const PolicySimulation& = {});

// ---- Failures.

// How a world learns that one of its ranks is lost: by the control plane's own rules (docs/architecture.md, Failure) on
// a virtual clock, with heartbeats of different ranks at different phases. Its connections take the topology's ways,
// and go around the lost rank. Times are from the loss on.
struct Detection {
  struct Notice {
    Rank rank = 0;
    double ns = 0;
  };
  std::vector<Notice> by_themselves = {};  // who notice it without being told, the first one first
  double all_know_ns = 0;                  // when the last rank ends with an error that names the lost one
};
enum class Loss : std::uint8_t {
  process,  // its connections close
  host,     // it is silent, until CommunicatorOptions::dead_after
};
// Throws Error{usage} for a rank that is not there, and for a world of one, where nobody is left.
Detection simulate_detection(const Topology&, Rank lost, Loss);

// What failures cost in the long run: the ranks that are left end with an error, and training begins again from its
// last checkpoint.
struct FailureModel {
  double mtbf_hours = 0;               // mean time between failures of one rank, which come by chance; 0: none fails
  double detection_s = 3;              // from a failure until all ranks have ended: see simulate_detection
  double recovery_s = 30;              // from there until training goes on: starting, meeting, reading the checkpoint
  double checkpoint_s = 0;             // to write one, while training waits
  std::uint64_t checkpoint_steps = 0;  // from one to the next; 0: as many as is best
};

struct StepWithFailures {
  double step_ns = 0;  // mean time for each step that counts; infinite where failures come faster than progress
  double goodput = 1;  // time of steps that count / time
  std::uint64_t checkpoint_steps = 0;  // the model's, or the best
};
// J. T. Daly: A higher order estimate of the optimum checkpoint interval for restart dumps. Future Generation Computer
// Systems 22 (2006): the mean for failures that come by chance, also while checkpoints are written and read.
StepWithFailures with_failures(double step_ns, Rank world, const FailureModel&);

}  // namespace ranvier
