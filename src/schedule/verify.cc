// Proves a schedule by running its compiled programs on symbols and comparing what they leave with what the collective
// is defined to leave.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ranvier/error.h"
#include "schedule/symbolic_run.h"

namespace ranvier {
namespace {

using schedule_detail::SymbolicRun;
using schedule_detail::Values;

constexpr std::size_t element = verified_element_bytes;

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

// Two and a half slices a chunk, and some elements that do not come out even.
std::size_t uneven_count(const Schedule& schedule, std::size_t slice_bytes) {
  const std::size_t chunk = 2 * (slice_bytes / element) + slice_bytes / element / 2 + 1;
  return moves_whole_vector(schedule.collective) ? schedule.chunks * chunk + schedule.chunks / 2 : chunk;
}

class Definition {
 public:
  Definition(const Schedule& schedule, std::span<const Layout> layouts) : schedule_(schedule), layouts_(layouts) {}

  // Calls `visit` with each contribution that element `i` of output chunk `chunk` of `rank` holds at the end, in order;
  // with none if it is to stay as it was.
  template <class Visit>
  void expected(Rank rank, std::size_t chunk, std::size_t i, Visit visit) const {
    const Extent& place = layout(rank).output[chunk];
    const auto at = static_cast<std::uint32_t>(place.offset / element + i);
    const auto source = static_cast<Rank>(chunk);
    switch (schedule_.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
        return everybody(at, visit);
      case Collective::reduce_scatter:
        return everybody(in_input_of(rank, rank, i), visit);
      case Collective::all_gather:
      case Collective::gather:
        return visit({source, static_cast<std::uint32_t>(i)});
      case Collective::all_to_all:
        return visit({source, in_input_of(source, rank, i)});
      case Collective::scatter:
        return visit({schedule_.root, in_input_of(schedule_.root, rank, i)});
      case Collective::neighbor_exchange: {
        const auto direction = static_cast<std::uint32_t>(chunk);
        const Rank beside = neighbor(schedule_.grid, rank, direction);
        if (beside == no_neighbor) return;
        return visit({beside, in_input_of(beside, static_cast<Rank>(opposite(direction)), i)});
      }
      default:
        return visit({schedule_.root, at});
    }
  }

 private:
  const Layout& layout(Rank rank) const { return layouts_[static_cast<std::size_t>(rank)]; }

  std::uint32_t in_input_of(Rank rank, Rank chunk, std::size_t i) const {
    return static_cast<std::uint32_t>(layout(rank).input[static_cast<std::size_t>(chunk)].offset / element + i);
  }

  template <class Visit>
  void everybody(std::uint32_t at, Visit visit) const {
    for (Rank rank = 0; rank < schedule_.world; ++rank) visit(Values::Contribution{rank, at});
  }

  const Schedule& schedule_;
  std::span<const Layout> layouts_;
};

// What is wrong with a value, in the words of its contributions.
std::string difference(const std::vector<Values::Contribution>& found,
                       const std::vector<Values::Contribution>& expected) {
  if (found.empty()) return "is never written";
  for (const auto& [rank, at] : expected)
    if (!std::binary_search(found.begin(), found.end(), Values::Contribution{rank, at}))
      return fmt::format("lacks element {} of rank {} and holds element {} of rank {}", at, rank, found[0].second,
                         found[0].first);
  const auto twice = std::adjacent_find(found.begin(), found.end());
  if (twice != found.end()) return fmt::format("holds the contribution of rank {} more than once", twice->first);
  return fmt::format("holds {} contributions instead of {}", found.size(), expected.size());
}

// What an element must hold, as the verifier compares it. Where ranks end with the same vector, worked out once for
// all.
class ExpectedMembers {
 public:
  explicit ExpectedMembers(const Definition& definition, Collective collective)
      : definition_(definition), common_(moves_whole_vector(collective)) {}

  struct Sum {
    std::uint64_t members = 0;
    std::size_t count = 0;
  };
  // Of element `i` of output chunk `chunk` of `rank`, which is element `at` of its output.
  Sum of(Rank rank, std::size_t chunk, std::size_t i, std::size_t at) {
    if (!common_) return sum(rank, chunk, i);
    if (at >= known_.size()) known_.resize(at + 1);
    if (known_[at].count == 0) known_[at] = sum(rank, chunk, i);
    return known_[at];
  }

 private:
  Sum sum(Rank rank, std::size_t chunk, std::size_t i) const {
    Sum sum;
    definition_.expected(rank, chunk, i, [&](const Values::Contribution& contribution) {
      sum.members += Values::members_of(contribution);
      ++sum.count;
    });
    return sum;
  }

  const Definition& definition_;
  const bool common_;
  std::vector<Sum> known_;
};

void check_outputs(const Schedule& schedule, std::span<const Layout> layouts, const SymbolicRun& run) {
  const Definition definition(schedule, layouts);
  const Values& values = run.values();
  ExpectedMembers expected_members(definition, schedule.collective);
  for (Rank rank = 0; rank < schedule.world; ++rank) {
    const auto& output = layouts[static_cast<std::size_t>(rank)].output;
    for (std::size_t chunk = 0; chunk < output.size(); ++chunk)
      for (std::size_t i = 0; i < output[chunk].bytes / element; ++i) {
        const auto fault = [&](const std::string& what) {
          throw Error(ErrorKind::internal, fmt::format("rank {} ends with a wrong output chunk {}: its element {} {}",
                                                       rank, chunk, i, what));
        };
        const std::size_t at = output[chunk].offset / element + i;
        const Values::Id id = run.output(rank, at);
        const Values::Value& value = values[id];
        const auto expected = expected_members.of(rank, chunk, i, at);
        if (value.count != expected.count || value.members != expected.members) {
          std::vector<Values::Contribution> all;
          definition.expected(rank, chunk, i, [&](const Values::Contribution& each) { all.push_back(each); });
          fault(
              difference(id == Values::nothing ? std::vector<Values::Contribution>{} : values.contributions(id), all));
        }
        if (value.complete != (reduces(schedule.collective) && schedule.world > 1))
          fault("was never completed: no step is marked as adding the last contribution");
        if (schedule.collective == Collective::all_reduce && value.bits != values[run.output(0, at)].bits)
          fault("was reduced in another order than on rank 0, so that their bits differ");
      }
  }
}

void count_cost(const Schedule& schedule, std::span<const Layout> layouts, std::span<const Program> programs,
                Verdict& verdict) {
  const auto end = [](const std::vector<Extent>& extents) {
    return extents.empty() ? 0 : extents.back().offset + extents.back().bytes;
  };
  for (Rank rank = 0; rank < schedule.world; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::size_t bytes = 0;
    for (const Instruction& send : programs[r].sends) {
      bytes += send.bytes;
      verdict.rounds = std::max(verdict.rounds, send.round + 1);
    }
    verdict.most_bytes_sent = std::max(verdict.most_bytes_sent, bytes);
    verdict.vector_bytes = std::max({verdict.vector_bytes, end(layouts[r].input), end(layouts[r].output)});
    const auto steps = schedule.program(rank);
    const auto messages =
        std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.action == Action::send; });
    verdict.most_messages = std::max(verdict.most_messages, static_cast<std::size_t>(messages));
  }
}

// What programs say of their links, of which nothing shows in what they do: where each transfer stands on its link, and
// what goes over each link in all, in rank order. The first transfer on a link carries the header; by where they end
// the executor tells how much of lent memory the other side has read.
class LinkCheck {
 public:
  LinkCheck(const SymbolicRun& run, Rank world) : run_(run), bytes_(static_cast<std::size_t>(world)) {}

  // Precondition: run.check_programs() has passed.
  void check(Rank rank, const std::vector<std::pair<Rank, std::size_t>>& totals, const std::vector<Instruction>& list,
             std::string_view direction) {
    std::vector<Rank> peers;
    for (const Instruction& instruction : list) {
      if (instruction.action == Action::copy || instruction.action == Action::reduce) continue;
      auto& bytes = of(instruction.peer);
      if (instruction.first_on_link == bytes.has_value())
        run_.fault(
            rank, instruction,
            bytes ? "is marked as the first on its link but is not" : "is the first on its link but not marked so");
      if (!bytes) peers.push_back(instruction.peer);
      bytes = bytes.value_or(0) + instruction.bytes;
      if (instruction.link_end != *bytes)
        run_.fault(
            rank, instruction,
            fmt::format("is said to end at byte {} of its link but ends at byte {}", instruction.link_end, *bytes));
      if (instruction.link >= totals.size() || totals[instruction.link].first != instruction.peer)
        run_.fault(rank, instruction, "is said to be on another rank's link");
    }
    const auto is_right = [&](const std::pair<Rank, std::size_t>& total) {
      return total.first >= 0 && static_cast<std::size_t>(total.first) < bytes_.size() &&
             of(total.first) == total.second;
    };
    const bool right = peers.size() == totals.size() && std::ranges::all_of(totals, is_right) &&
                       std::ranges::adjacent_find(totals, std::ranges::greater_equal{},
                                                  &std::pair<Rank, std::size_t>::first) == totals.end();
    if (!right)
      throw Error(ErrorKind::internal,
                  fmt::format("rank {} has wrong totals of the bytes that it {} each peer", rank, direction));
    for (const Rank peer : peers) of(peer).reset();
  }

 private:
  std::optional<std::size_t>& of(Rank peer) { return bytes_[static_cast<std::size_t>(peer)]; }

  const SymbolicRun& run_;
  std::vector<std::optional<std::size_t>> bytes_;  // by peer, up to here; none where nothing has gone
};

// That an answer in place is what it stands for: the receiver's next send of just what the receive leaves, and the
// recv that the sender expects it in. Precondition: links are right.
void check_answers(const SymbolicRun& run, std::span<const Program> programs, Rank rank) {
  const Program& own = programs[static_cast<std::size_t>(rank)];
  for (std::size_t r = 0; r < own.receives.size(); ++r) {
    const Instruction& receive = own.receives[r];
    if (receive.answer == 0) continue;
    if (receive.answer > own.sends.size())
      run.fault(rank, receive, "is said to be answered by a send that there is not");
    const Instruction& send = own.sends[receive.answer - 1];
    if (receive.action != Action::recv_reduce || receive.bytes == 0 || send.peer != receive.peer ||
        send.after != r + 1 || send.from_buffer != receive.to_buffer || send.from != receive.to ||
        send.bytes != receive.bytes)
      run.fault(rank, receive, "is said to be answered by a send of something else");
    const Program& peers = programs[static_cast<std::size_t>(receive.peer)];
    for (const Instruction& asks : peers.sends) {
      if (asks.peer != rank || asks.link_end != receive.link_end || asks.answer == 0) continue;
      const bool right = asks.answer <= peers.receives.size() && [&] {
        const Instruction& sum = peers.receives[asks.answer - 1];
        return sum.action == Action::recv && sum.peer == rank && sum.bytes == send.bytes &&
               sum.link_end == send.link_end;
      }();
      if (!right) run.fault(receive.peer, asks, "is answered by another message than it expects");
    }
  }
}

// The same with its programs at hand: where rounds are ahead, compiling each one looks at those of all.
Schedule with_programs_at_hand(Schedule schedule) {
  std::vector<std::vector<Step>> programs;
  for (Rank rank = 0; rank < schedule.world; ++rank) programs.push_back(schedule.program(rank));
  schedule.program = [programs = std::move(programs)](Rank rank) { return programs[static_cast<std::size_t>(rank)]; };
  return schedule;
}

}  // namespace

Verdict verify(const Schedule& built, const VerifyOptions& options) {
  try {
    const Schedule schedule = options.ahead_bytes > 0 ? with_programs_at_hand(built) : built;
    const std::size_t count = options.count > 0 ? options.count : uneven_count(schedule, options.slice_bytes);
    std::vector<Layout> layouts;
    std::vector<Program> programs;
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      layouts.push_back(even_layout(schedule, rank, count, element));
      programs.push_back(compile(schedule, rank, layouts.back(),
                                 {.element_bytes = element,
                                  .slice_bytes = options.slice_bytes,
                                  .in_place = options.in_place,
                                  .unanswered = options.unanswered,
                                  .ahead_bytes = options.ahead_bytes,
                                  .lead_bytes = options.lead_bytes}));
    }
    return verify(schedule, layouts, programs, options);
  } catch (const Error& error) {
    return {.ok = false, .problem = error.what()};
  }
}

Verdict verify(const Schedule& schedule, std::span<const Layout> layouts, std::span<const Program> programs,
               const VerifyOptions& options) {
  Verdict verdict;
  try {
    count_cost(schedule, layouts, programs, verdict);
    SymbolicRun run(schedule, layouts, programs, options);
    run.check_programs();
    LinkCheck links(run, schedule.world);
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      const Program& program = programs[static_cast<std::size_t>(rank)];
      links.check(rank, program.bytes_to, program.sends, "sends to");
      links.check(rank, program.bytes_from, program.receives, "receives from");
    }
    for (Rank rank = 0; rank < schedule.world; ++rank) check_answers(run, programs, rank);
    run.run();
    check_outputs(schedule, layouts, run);
    verdict.ok = true;
  } catch (const Error& error) {
    verdict.problem = error.what();
  }
  return verdict;
}

}  // namespace ranvier
