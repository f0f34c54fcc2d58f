// Runs the compiled programs of all ranks on symbols, as the executor runs them on numbers: two cursors a rank.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ranvier/schedule.h"
#include "schedule/symbolic_values.h"

namespace ranvier::schedule_detail {

class SymbolicRun {
 public:
  // All of these outlive the run.
  SymbolicRun(const Schedule&, std::span<const Layout>, std::span<const Program>, const VerifyOptions&);

  // Throws fault() for the first instruction with a peer that there is not, beyond its buffers or in the wrong list.
  void check_programs() const;
  // Throws fault() for the first instruction that goes wrong with the others, and Error{internal} with the circle of
  // those that wait for each other. Precondition: check_programs() has passed.
  void run();
  // Error{internal} with a sentence that names rank, round and chunk: "rank 1 sends …, which `what`".
  [[noreturn]] void fault(Rank, const Instruction&, const std::string& what) const;

  const Values& values() const { return values_; }
  Values::Id output(Rank, std::size_t element) const;

 private:
  struct Cell {
    Values::Id value = Values::nothing;
    std::uint32_t written = 0;  // receives up to and with the last one that wrote here
    std::uint32_t sent = 0;     // sends up to and with the last one that read here
  };

  struct State {
    std::vector<Cell> user;  // input and output, the same memory in an in-place call
    std::vector<Cell> scratch;
    std::size_t input_at = 0;  // in `user`, in elements
    std::size_t output_at = 0;
    std::size_t input_size = 0;
    std::size_t output_size = 0;
    std::size_t sends = 0;  // done
    std::size_t receives = 0;
    std::uint32_t sends_waited = 0;     // how many sends the receives up to the next one have waited for, …
    std::uint32_t receives_waited = 0;  // … and the other way around
    // By send: how many receives must be done before the memory of a message that was answered in place is free for it;
    // empty where none may be.
    std::vector<std::uint32_t> held;
    bool queued = false;
  };

  using Ids = std::vector<Values::Id>;
  struct Message {
    const Instruction* send;
    Ids values;
  };
  using Link = std::vector<Message>;  // few; there are many links, and an empty deque is half a kilobyte

  enum class List : std::uint8_t { sends, receives };
  struct Cursor {
    Rank rank;
    List list;
    friend bool operator==(const Cursor&, const Cursor&) = default;
  };

  void prepare(Rank);
  void hold_answers(Rank);
  void advance(Rank);
  bool advance_sends(Rank);
  bool advance_receives(Rank);
  bool deliver_at_once(Rank from, Rank to);
  void take_up(Rank, const Instruction& send, Ids& values);
  void receive(Rank, const Instruction&, const Instruction& send, Ids& values);
  void compute(Rank, const Instruction&);
  void write(Rank, const Instruction&, const Ids&);
  Values::Id combine(Rank, const Instruction&, Values::Id own, Values::Id other);
  void check_ends_of_link(Rank, const Instruction& receive, const Instruction& send) const;
  void check_shape(Rank, const Instruction&) const;
  void check_all_done() const;

  const Instruction* next_send(Rank) const;  // null at the end
  const Instruction* next_receive(Rank) const;
  const Instruction* next(Cursor) const;
  bool ready(Cursor) const;  // the other list has come far enough
  Cursor waits_for(Cursor) const;
  std::string describe_wait(Cursor) const;

  std::span<Cell> cells(Rank, Buffer, std::size_t offset, std::size_t bytes);
  std::string name(Rank, Buffer, std::size_t offset) const;
  std::string name(Rank, const Instruction&) const;

  State& at(Rank rank) { return states_[static_cast<std::size_t>(rank)]; }
  const State& at(Rank rank) const { return states_[static_cast<std::size_t>(rank)]; }
  const Program& program(Rank rank) const { return programs_[static_cast<std::size_t>(rank)]; }
  Link& buffered(Rank from, Rank to);
  void wake(Rank);

  const Schedule& schedule_;
  std::span<const Layout> layouts_;
  std::span<const Program> programs_;
  VerifyOptions options_;
  Values values_;
  std::vector<State> states_;
  std::unordered_map<std::uint64_t, Link> buffered_;  // by link; none where every send is a rendezvous
  Ids moving_;                                        // of one instruction at a time
  std::deque<Rank> awake_;
};

}  // namespace ranvier::schedule_detail
