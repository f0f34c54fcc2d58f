// Lays a rank's program out flat: sizes and slices resolved, in wavefront order, with the waits that data demands.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "ranvier/error.h"
#include "schedule/memory_map.h"

namespace ranvier {
namespace {

// What a rank copies of its input in the first round waits for nobody, but stands among receives, which are done in
// order; and sends may wait for it. So many slices ahead, a slice is under way while the next ones are sent, and they
// are still in a cache.
constexpr std::uint32_t copied_ahead = 2;

// In larger worlds a step is so many slices that they are enough ahead.
constexpr Rank most_ranks_ahead = 32;
constexpr std::size_t most_ahead = 1 << 10;  // slices: 16 MiB of the shortest
// One is on its way to a rank while what it sends in return is on its way back.
constexpr std::size_t least_lead = 2;  // waves

using schedule_detail::MemoryMap;
using schedule_detail::Region;

constexpr bool is_transfer(Action action) { return action != Action::copy && action != Action::reduce; }
constexpr bool reads_memory(Action action) { return action != Action::recv; }
constexpr bool writes_memory(Action action) { return action != Action::send; }

// One instruction to be, and the cells (see MemoryMap) that it touches.
struct Piece {
  Instruction instruction;
  std::uint32_t slice;  // of its chunk
  std::uint32_t wave;
  std::uint32_t from_cell;
  std::uint32_t to_cell;
  std::uint32_t cells;
};

// Marks the sends and receives whose messages may be answered in place. The memory of one that was answered serves no
// other send before the answer is read. So that nobody waits in a circle for that, it may be answered only if the send
// that would take that memory next, which is the `unanswered`-th behind it on its link at the earliest, is of a later
// wave than the answer: whatever has to happen before the answer is read is of that wave or an earlier one, and where
// of two things that wait the earlier one never waits for the later one there is no circle.
class Answers {
 public:
  void note_send(std::uint32_t wave) { send_waves_.push_back(wave); }
  void note_receive(std::uint32_t wave) { receive_waves_.push_back(wave); }

  void mark(Program& program, std::uint32_t unanswered) const {
    for (std::uint32_t s = 0; s < program.sends.size(); ++s) {
      const Instruction& send = program.sends[s];
      if (send.after == 0 || send.bytes == 0) continue;
      Instruction& last = program.receives[send.after - 1];
      if (last.action == Action::recv_reduce && last.peer == send.peer && last.to_buffer == send.from_buffer &&
          last.to == send.from && last.bytes == send.bytes)
        last.answer = s + 1;
    }
    std::map<std::pair<Rank, std::size_t>, std::uint32_t> sums;  // by sender and place, the last one
    for (std::uint32_t r = 0; r < program.receives.size(); ++r)
      if (program.receives[r].action == Action::recv) sums[{program.receives[r].peer, program.receives[r].to}] = r;
    std::map<Rank, std::deque<std::uint32_t>> later;  // of each link, as many sends as may be unanswered
    for (std::uint32_t s = static_cast<std::uint32_t>(program.sends.size()); s-- > 0;) {
      Instruction& send = program.sends[s];
      auto& behind = later[send.peer];
      const auto sum = sums.find({send.peer, send.from});
      if (sum != sums.end() && program.receives[sum->second].bytes == send.bytes && send.bytes > 0 &&
          send_waves_[s] < receive_waves_[sum->second] &&
          (behind.size() < unanswered || send_waves_[behind.back()] > receive_waves_[sum->second]))
        send.answer = sum->second + 1;
      behind.push_front(s);
      if (behind.size() > unanswered) behind.pop_back();
    }
  }

 private:
  std::vector<std::uint32_t> send_waves_;
  std::vector<std::uint32_t> receive_waves_;
};

// How many waves so many bytes, of which there are some, are where a rank has so many slices in one.
std::size_t waves_of(std::size_t bytes, std::size_t slice, std::size_t slices_in_a_wave) {
  const std::size_t slices = (bytes - 1) / slice + 1;
  return std::min((slices - 1) / slices_in_a_wave + 1, most_ahead);
}

// By how many slices a round is ahead of the next one; the same at all ranks, or the two ends of a link would see its
// transfers in different orders. What is late then makes nobody wait who has so much to send meanwhile. It takes
// schedules in which all ranks send in every round: in a tree those that wait for the round before have nothing else
// to do.
std::uint32_t slices_ahead(const Schedule& schedule, std::size_t slice, std::size_t ahead_bytes) {
  if (ahead_bytes <= slice || schedule.world > most_ranks_ahead) return 1;
  std::uint32_t rounds = 0;
  std::size_t least_sent = std::numeric_limits<std::size_t>::max();  // in a step, by any rank, in slices
  for (Rank rank = 0; rank < schedule.world; ++rank) {
    std::vector<bool> sends;
    std::size_t sent = 0;
    for (const Step& step : schedule.program(rank)) {
      if (step.action != Action::send) continue;
      sends.resize(std::max<std::size_t>(sends.size(), step.round + 1));
      sends[step.round] = true;
      sent += step.chunks;
    }
    if (rank == 0) rounds = static_cast<std::uint32_t>(sends.size());
    if (sends.size() != rounds || std::ranges::count(sends, false) > 0) return 1;
    least_sent = std::min(least_sent, sent);
  }
  if (rounds < 2) return 1;
  return static_cast<std::uint32_t>(waves_of(ahead_bytes, slice, least_sent));
}

// How many chunks meet, in a wave, in front of the line of one rank: as many as a rank sends where everybody sends to
// everybody at once, and those of all others where it has one partner that everybody has, a server. Else 0: who sends
// to one at a time waits for what comes by itself, and who gets nothing back has nothing to go by.
std::size_t chunks_that_meet(const Schedule& schedule, std::span<const Step> steps) {
  struct Round {
    std::size_t sent = 0, received = 0, chunks = 0;
  };
  std::vector<Round> rounds;
  std::set<Rank> partners;
  std::size_t most = 0;
  for (const Step& step : steps) {
    if (!is_transfer(step.action)) continue;
    rounds.resize(std::max<std::size_t>(rounds.size(), step.round + 1));
    Round& round = rounds[step.round];
    ++(step.action == Action::send ? round.sent : round.received);
    if (step.action == Action::send) most = std::max<std::size_t>(most, round.chunks += step.chunks);
    if (partners.size() < 2) partners.insert(step.peer);
  }
  if (partners.size() > 1) {
    const bool is_crowd =
        std::ranges::any_of(rounds, [](const Round& each) { return each.sent > 1 && each.received > 1; });
    return is_crowd ? most : 0;
  }
  if (schedule.world < 3 || partners.empty()) return 0;
  std::set<Rank> heard;
  for (const Step& step : schedule.program(*partners.begin()))
    if (is_transfer(step.action) && step.action != Action::send) heard.insert(step.peer);
  return heard.size() + 1 == static_cast<std::size_t>(schedule.world) ? most * heard.size() : 0;
}

// How many waves a rank may be ahead of what it has received; 0: all of them. What is sent to one rank meets in front
// of its line, and what a queue does not hold there is lost (A. Phanishayee et al.: Measurement and analysis of TCP
// throughput collapse in cluster-based storage systems. FAST 2008); and where some get more of that line than others,
// all wait for the last. Nobody waits in a circle: a slice waits for such of earlier waves only, and ranks need not
// agree on how many.
std::uint32_t waves_of_lead(const Schedule& schedule, std::span<const Step> steps, std::size_t slice,
                            std::size_t lead_bytes) {
  const std::size_t wave = lead_bytes == 0 ? 0 : chunks_that_meet(schedule, steps);
  if (wave == 0) return 0;
  return static_cast<std::uint32_t>(std::max(waves_of(lead_bytes, slice, wave), least_lead));
}

// Whom a rank sends to, or receives from, in rank order, and how many bytes.
class Links {
 public:
  Links(std::span<const Step> steps, bool of_sends) {
    for (const Step& step : steps)
      if (is_transfer(step.action) && (step.action == Action::send) == of_sends && step.chunks > 0)
        if (totals_.empty() || totals_.back().first != step.peer) totals_.emplace_back(step.peer, 0);
    std::ranges::sort(totals_);
    totals_.erase(std::unique(totals_.begin(), totals_.end()), totals_.end());
    begun_.resize(totals_.size());
  }

  // Says of the next transfer on its link where it stands there.
  void append(Instruction& transfer) {
    if (totals_[last_].first != transfer.peer)
      last_ = static_cast<std::size_t>(
          std::ranges::lower_bound(totals_, transfer.peer, {}, &std::pair<Rank, std::size_t>::first) - totals_.begin());
    transfer.first_on_link = !begun_[last_];
    begun_[last_] = true;
    transfer.link_end = totals_[last_].second += transfer.bytes;
    transfer.link = static_cast<std::uint32_t>(last_);
  }

  std::vector<std::pair<Rank, std::size_t>> totals() && { return std::move(totals_); }

 private:
  std::vector<std::pair<Rank, std::size_t>> totals_;
  std::vector<bool> begun_;
  std::size_t last_ = 0;
};

class Compiler {
 public:
  Compiler(const Schedule& schedule, Rank rank, const Layout& layout, const CompileOptions& options)
      : schedule_(schedule),
        rank_(rank),
        ahead_bytes_(options.ahead_bytes),
        lead_bytes_(options.lead_bytes),
        steps_(schedule.program(rank)),
        slice_(std::max(options.slice_bytes / options.element_bytes, std::size_t{1}) * options.element_bytes),
        memory_(schedule, rank, layout, steps_, slice_, options.in_place),
        runs_unbuffered_(!schedule.buffered_in_place || !options.in_place),
        unanswered_(schedule.collective == Collective::all_reduce && runs_unbuffered_ ? options.unanswered : 0) {}

  Program compile() {
    pieces_.reserve(steps_.size());
    for (const Step& step : steps_) cut(step);
    Program program;
    if (order_in_waves() > 1) program.ahead_bytes = ahead_bytes_;
    program.scratch_bytes = memory_.scratch_bytes();
    program.runs_unbuffered = runs_unbuffered_;
    emit(program);
    return program;
  }

 private:
  // Cuts a step into pieces of at most a slice. A chunk larger than a slice is cut at the same borders wherever it is
  // moved, and anything else is its piece 0: so pieces that touch the same memory have the same slice number, and the
  // order of waves keeps the order of rounds among them. Sizes alone decide where to cut, so both ends of a link agree.
  void cut(const Step& step) {
    const auto chunk = [&](std::uint32_t i) { return region(step, i); };
    for (std::uint32_t i = 0; i < step.chunks;) {
      const auto [from, to] = chunk(i);
      std::size_t bytes = reads_memory(step.action) ? from.bytes : to.bytes;
      if (bytes > slice_) {
        std::uint32_t slice = 0;
        for (std::size_t offset = 0; offset < bytes; offset += slice_, ++slice)
          add(step, slice, from.offset + offset, to.offset + offset, std::min(slice_, bytes - offset),
              from.first_cell + slice, to.first_cell + slice, 1);
        ++i;
        continue;
      }
      const std::uint32_t first = i++;
      for (; i < step.chunks; ++i) {
        const auto [next_from, next_to] = chunk(i);
        const std::size_t more = reads_memory(step.action) ? next_from.bytes : next_to.bytes;
        if (bytes + more > slice_) break;
        bytes += more;
      }
      add(step, 0, from.offset, to.offset, bytes, from.first_cell, to.first_cell, i - first);
    }
  }

  std::pair<Region, Region> region(const Step& step, std::uint32_t i) const {
    const Region from = reads_memory(step.action) ? memory_.find(step, step.from, i) : Region{};
    const Region to = writes_memory(step.action) ? memory_.find(step, step.to, i) : Region{};
    if (reads_memory(step.action) && writes_memory(step.action) && from.bytes != to.bytes)
      throw Error(
          ErrorKind::internal,
          fmt::format("the program of rank {} is wrong: in round {} it combines chunk {} of {} bytes with chunk {} of "
                      "{} bytes",
                      rank_, step.round, step.from.chunk + i, from.bytes, step.to.chunk + i, to.bytes));
    return {from, to};
  }

  void add(const Step& step, std::uint32_t slice, std::size_t from, std::size_t to, std::size_t bytes,
           std::uint32_t from_cell, std::uint32_t to_cell, std::uint32_t cells) {
    if (step.action == Action::copy && from_cell == to_cell) return;  // in place, it is there already
    if (bytes == 0 && !is_transfer(step.action)) return;
    const bool reads = reads_memory(step.action);
    const bool writes = writes_memory(step.action);
    pieces_.push_back({.instruction = {.action = step.action,
                                       .completes = step.completes,
                                       .first_on_link = false,
                                       .from_buffer = step.from.buffer,
                                       .to_buffer = step.to.buffer,
                                       .peer = step.peer,
                                       .after = 0,
                                       .round = step.round,
                                       .from = reads ? from : 0,
                                       .to = writes ? to : 0,
                                       .bytes = bytes},
                       .slice = slice,
                       .wave = 0,
                       .from_cell = from_cell,
                       .to_cell = to_cell,
                       .cells = cells});
  }

  // By how many slices a round is ahead of the next one.
  std::uint32_t order_in_waves() {
    const bool is_cut = std::ranges::any_of(pieces_, [](const Piece& piece) { return piece.slice > 0; });
    const std::uint32_t ahead = is_cut ? slices_ahead(schedule_, slice_, ahead_bytes_) : 1;
    for (Piece& piece : pieces_) {
      const Instruction& each = piece.instruction;
      const bool is_first_copy = each.round == 0 && each.action == Action::copy && each.from_buffer == Buffer::input;
      const std::uint32_t round = each.round / schedule_.turns;
      piece.wave = is_first_copy ? piece.slice - std::min(piece.slice, copied_ahead) : piece.slice + ahead * round;
    }
    return ahead;
  }

  // The pieces by wave; those of one wave in the order of the program, on every rank, so that the two ends of a link
  // see its transfers in the same order. A counting sort: waves are few.
  std::vector<std::uint32_t> wavefront() const {
    std::uint32_t last_wave = 0;
    for (const Piece& piece : pieces_) last_wave = std::max(last_wave, piece.wave);
    std::vector<std::uint32_t> begin(last_wave + std::size_t{2});
    for (const Piece& piece : pieces_) ++begin[piece.wave + std::size_t{1}];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::uint32_t> order(pieces_.size());
    for (std::uint32_t i = 0; i < pieces_.size(); ++i) order[begin[pieces_[i].wave]++] = i;
    return order;
  }

  void emit(Program& program) {
    Links to(steps_, true);
    Links from(steps_, false);
    Answers answers;
    // For each cell, how many instructions of a list stand up to the last one that wrote or read it.
    std::vector<std::uint32_t> written(memory_.cells());
    std::vector<std::uint32_t> sent(memory_.cells());
    const auto latest = [](const std::vector<std::uint32_t>& marks, std::uint32_t cell, std::uint32_t cells) {
      return *std::max_element(marks.begin() + cell, marks.begin() + cell + cells);
    };
    const auto mark = [](std::vector<std::uint32_t>& marks, std::uint32_t cell, std::uint32_t cells, std::size_t upto) {
      std::fill_n(marks.begin() + cell, cells, static_cast<std::uint32_t>(upto));
    };

    const std::uint32_t lead = waves_of_lead(schedule_, steps_, slice_, lead_bytes_);
    std::vector<std::uint32_t> received;  // up to the end of each wave

    program.sends.reserve(pieces_.size() / 2 + 1);
    program.receives.reserve(pieces_.size() / 2 + 1);
    for (const std::uint32_t i : wavefront()) {
      Piece& piece = pieces_[i];
      Instruction& instruction = piece.instruction;
      if (lead > 0) received.resize(piece.wave, static_cast<std::uint32_t>(program.receives.size()));
      const bool sending = instruction.action == Action::send;
      if (is_transfer(instruction.action)) {
        (sending ? to : from).append(instruction);
        if (instruction.bytes == 0 && !instruction.first_on_link) continue;
      }
      if (sending) {
        instruction.after = latest(written, piece.from_cell, piece.cells);
        if (lead > 0 && piece.wave >= lead)
          instruction.after = std::max(instruction.after, received[piece.wave - lead]);
        program.sends.push_back(instruction);
        answers.note_send(piece.wave);
        mark(sent, piece.from_cell, piece.cells, program.sends.size());
      } else {
        instruction.after = latest(sent, piece.to_cell, piece.cells);
        program.receives.push_back(instruction);
        answers.note_receive(piece.wave);
        mark(written, piece.to_cell, piece.cells, program.receives.size());
      }
    }
    if (unanswered_ > 0) answers.mark(program, unanswered_);
    program.bytes_to = std::move(to).totals();
    program.bytes_from = std::move(from).totals();
  }

  const Schedule& schedule_;
  Rank rank_;
  std::size_t ahead_bytes_;
  std::size_t lead_bytes_;
  std::vector<Step> steps_;
  std::size_t slice_;
  MemoryMap memory_;
  bool runs_unbuffered_;
  std::uint32_t unanswered_;
  std::vector<Piece> pieces_;
};

}  // namespace

Program compile(const Schedule& schedule, Rank rank, const Layout& layout, const CompileOptions& options) {
  return Compiler(schedule, rank, layout, options).compile();
}

}  // namespace ranvier
