// One rank of one library that is measured: ranvier's own, or another's beside it. Everything but the library's calls
// is the same code for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/job.h"
#include "bench/lines.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"

namespace ranvier::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  virtual Rank rank() const = 0;
  virtual Rank world() const = 0;
  // Which library, version and transport, in a few words; goes into the report.
  virtual std::string description() const = 0;
  // Why this library cannot run the job, the same on all ranks; empty if it can.
  virtual std::string refusal(const Job&) const = 0;
  // The memory of the next runs; in place, both lie in one buffer (see Shape).
  virtual void prepare(const Job&, const void* input, void* output) = 0;
  // The job's collective, `times` in a row. Loops inside, so that no call of this interface is measured.
  virtual void run(std::uint64_t times) = 0;
  virtual void barrier() = 0;
  // Since the start; none where every byte arrives.
  virtual LossCounts losses() const { return {}; }
  // Since some moment, of all that this rank sent and received; zeros where nobody counts them.
  virtual PacketCounts packets() const { return {}; }
  // What the kernel counted of this rank's network namespace instead, whichever of its ranks asks.
  virtual PacketCounts kernel_packets() const { return {}; }
  // Whether another algorithm runs the job than the one that was asked for, which cannot.
  virtual bool fell_back() const { return false; }
  // Memory for inputs and outputs, aligned to a page. Throws Error{config} where there is no more.
  virtual std::shared_ptr<std::byte[]> allocate(std::size_t bytes);
};

// What a rank says of a job.
struct Reply {
  std::string refusal = {};   // of the job; the rest then means nothing
  double seconds = 0;         // all iterations together, without the warm-ups
  std::uint64_t wrong = 0;    // elements of this rank's output after the last iteration
  double cpu_seconds = 0;     // of this process meanwhile; 0 where a peer does not tell
  LossCounts losses = {};     // of this rank, warm-ups and all
  PacketCounts packets = {};  // likewise
  PacketCounts kernel = {};   // likewise, of all ranks in `network`
  std::uint64_t network = 0;  // see counting_network()
  double error = 0;           // of this rank's output, relative; see Fill::centred
  bool fell_back = false;     // another algorithm ran than was asked for
};

inline PacketCounts& operator+=(PacketCounts& to, const PacketCounts& more) {
  to.sent += more.sent;
  to.lost += more.lost;
  to.refused += more.refused;
  return to;
}
// From one time to a later one. A packet that was taken for lost may turn up later, so that a count goes back.
PacketCounts grown(const PacketCounts& before, const PacketCounts& after);
std::string to_line(const Reply&);
// Throws Error{mismatch}; for a line of failure_line what that says.
Reply reply_from_line(const std::string&);
// What a rank failed with: its kind, sentence and flight record, of which the oldest lines are left out where they make
// the line too long.
std::string failure_line(const Error&);
// None of another line.
std::optional<Error> failure_of(std::string_view line);

// The buffer of one job after another: grows only.
class Memory {
 public:
  explicit Memory(Peer& peer) : peer_(peer) {}
  std::byte* reserve(std::size_t bytes);

 private:
  Peer& peer_;
  std::shared_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

class Measurer {
 public:
  explicit Measurer(Peer&);
  // Rewrites the memory, warms up, and times the iterations between two barriers. All ranks call it with one job.
  Reply measure(const Job&);

 private:
  Peer& peer_;
  const std::uint64_t network_;
  Memory input_;
  Memory output_;
};

// Measures what the coordinator asks for until it closes the connection. Returns the exit code of the process.
int serve(Peer&, Lines);

// Keeps this thread, and those that it starts from now on, on the core of its number among those that the process may
// use. The first thing that a pinned rank does.
void pin_to_core(Rank local_rank);
// Set for ranks that are to pin themselves.
inline constexpr const char* pin_variable = "RANVIER_BENCH_PIN";

}  // namespace ranvier::bench
