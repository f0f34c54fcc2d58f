// Planted faults: the verifier proves nothing unless it finds every one of these, and says where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ranvier/error.h"
#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

constexpr VerifyOptions options{.slice_bytes = 16};

// Whether there is a number behind this word. Not by a regular expression: compiling one took longer than the verifier
// takes to find a fault, of which thousands are planted.
bool names(const std::string& text, std::string_view word) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
    at += word.size();
    if (at + 1 < text.size() && text[at] == ' ' && std::isdigit(static_cast<unsigned char>(text[at + 1])) != 0)
      return true;
  }
  return false;
}

// A sentence that helps names a rank and what of its memory is concerned.
void expect_caught(const Verdict& verdict, const std::string& fault) {
  EXPECT_FALSE(verdict.ok) << fault << " was not caught";
  EXPECT_TRUE(names(verdict.problem, "rank")) << fault << ": " << verdict.problem;
  EXPECT_TRUE(names(verdict.problem, "chunk") || names(verdict.problem, "scratch byte"))
      << fault << ": " << verdict.problem;
}

// ---- Faults of builders: one step of one rank is wrong.

struct Mutation {
  std::string name;
  // Changes step `i`, or returns false where this mutation does not apply to it.
  std::function<bool(std::vector<Step>&, std::size_t i, const Schedule&, Rank)> apply;
};

bool is_transfer(const Step& step) { return step.action != Action::copy && step.action != Action::reduce; }

// Whether the place that send `i` reads holds more than a copy of this rank's own input.
bool holds_something_received(const std::vector<Step>& steps, std::size_t i) {
  const Place sent = steps[i].from;
  return std::any_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i), [&](const Step& step) {
    return (step.action == Action::recv || step.action == Action::recv_reduce) && step.to.buffer == sent.buffer &&
           step.to.slot == sent.slot && step.to.chunk < sent.chunk + steps[i].chunks &&
           sent.chunk < step.to.chunk + step.chunks;
  });
}

std::vector<Mutation> mutations() {
  return {
      {"a dropped step",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
         return true;
       }},
      {"a doubled step",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (steps[i].action == Action::copy) return false;  // the second one changes nothing
         steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(i), Step(steps[i]));
         return true;
       }},
      {"a wrong chunk to read",
       [](std::vector<Step>& steps, std::size_t i, const Schedule& schedule, Rank) {
         if (steps[i].action == Action::recv || schedule.chunks == 1) return false;
         steps[i].from.chunk = (steps[i].from.chunk + 1) % schedule.chunks;
         return true;
       }},
      {"a wrong chunk to write",
       [](std::vector<Step>& steps, std::size_t i, const Schedule& schedule, Rank) {
         if (steps[i].action == Action::send || schedule.chunks == 1) return false;
         steps[i].to.chunk = (steps[i].to.chunk + 1) % schedule.chunks;
         // A detour through another scratch chunk that nobody uses would do no harm.
         return steps[i].to.buffer != Buffer::scratch;
       }},
      {"a chunk more",
       [](std::vector<Step>& steps, std::size_t i, const Schedule& schedule, Rank) {
         if (!is_transfer(steps[i]) || schedule.chunks == 1) return false;
         ++steps[i].chunks;
         return true;
       }},
      {"a wrong peer",
       [](std::vector<Step>& steps, std::size_t i, const Schedule& schedule, Rank rank) {
         if (!is_transfer(steps[i]) || schedule.world == 2) return false;
         do {
           steps[i].peer = (steps[i].peer + 1) % schedule.world;
         } while (steps[i].peer == rank);
         return true;
       }},
      {"a peer that does not exist",
       [](std::vector<Step>& steps, std::size_t i, const Schedule& schedule, Rank) {
         if (!is_transfer(steps[i])) return false;
         steps[i].peer = schedule.world;
         return true;
       }},
      {"a recv instead of a recv_reduce",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (steps[i].action != Action::recv_reduce) return false;
         steps[i].action = Action::recv;
         return true;
       }},
      {"a recv_reduce instead of a recv",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (steps[i].action != Action::recv) return false;
         steps[i].action = Action::recv_reduce;
         steps[i].from = steps[i].to;
         return true;
       }},
      {"a completion that is missing or wrong",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (steps[i].action != Action::recv_reduce && steps[i].action != Action::reduce) return false;
         steps[i].completes = !steps[i].completes;
         return true;
       }},
      {"a write to the input",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (steps[i].action == Action::send) return false;
         steps[i].to.buffer = Buffer::input;
         return true;
       }},
      {"a wrong round",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (!is_transfer(steps[i])) return false;
         steps[i].round += 1;
         return true;
       }},
      {"a send of the input instead of the result",
       [](std::vector<Step>& steps, std::size_t i, const Schedule&, Rank) {
         if (steps[i].action != Action::send || steps[i].from.buffer == Buffer::input) return false;
         if (!holds_something_received(steps, i)) return false;
         steps[i].from.buffer = Buffer::input;
         return true;
       }},
  };
}

Schedule with_program(const Schedule& schedule, Rank rank, const std::vector<Step>& steps) {
  Schedule changed = schedule;
  changed.program = [original = schedule.program, rank, steps](Rank each) {
    return each == rank ? steps : original(each);
  };
  return changed;
}

// A schedule whose programs are at hand: thousands of faults are planted, and building and compiling the ranks that
// have none took longer than finding them.
struct Compiled {
  Schedule schedule;
  VerifyOptions how = options;
  std::vector<Layout> layouts;
  std::vector<Program> programs;

  Compiled(const Schedule& built, bool in_place, std::size_t count, std::size_t buffered_slices) : schedule(built) {
    how.in_place = in_place;
    how.buffered_slices = buffered_slices;
    const auto steps = std::make_shared<std::vector<std::vector<Step>>>();
    for (Rank rank = 0; rank < schedule.world; ++rank) steps->push_back(schedule.program(rank));
    schedule.program = [steps](Rank rank) { return (*steps)[static_cast<std::size_t>(rank)]; };
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      layouts.push_back(even_layout(schedule, rank, count, verified_element_bytes));
      programs.push_back(compiled(schedule, rank));
    }
  }
  Program compiled(const Schedule& changed, Rank rank) const {
    return compile(changed, rank, layouts[static_cast<std::size_t>(rank)],
                   {.element_bytes = verified_element_bytes,
                    .slice_bytes = how.slice_bytes,
                    .in_place = how.in_place,
                    .unanswered = how.unanswered});
  }
  Verdict check() const { return verify(schedule, layouts, programs, how); }

  // With other steps of one rank.
  Verdict check_with(Rank rank, const std::vector<Step>& steps) {
    const Schedule changed = with_program(schedule, rank, steps);
    Program& program = programs[static_cast<std::size_t>(rank)];
    Verdict verdict;
    try {
      Program sound = std::exchange(program, compiled(changed, rank));
      verdict = verify(changed, layouts, programs, how);
      program = std::move(sound);
    } catch (const Error& error) {  // of compile
      verdict.problem = error.what();
    }
    return verdict;
  }
};

class PlantedFault : public testing::TestWithParam<Rank> {};

INSTANTIATE_TEST_SUITE_P(Worlds, PlantedFault, testing::Values(2, 3, 5, 8));

TEST_P(PlantedFault, InAnyStepOfAnyBuilderIsCaught) {
  for_each_shape(GetParam(), GetParam() - 1, [](const Schedule& schedule) {
    // Chunks of two and a half slices, and some elements that do not come out even.
    const std::size_t chunk = 5 * options.slice_bytes / verified_element_bytes / 2 + 1;
    const std::size_t count =
        moves_whole_vector(schedule.collective) ? schedule.chunks * chunk + schedule.chunks / 2 : chunk;
    Compiled compiled(schedule, false, count, 0);
    ASSERT_TRUE(compiled.check().ok);
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      const std::vector<Step> steps = schedule.program(rank);
      for (const Mutation& mutation : mutations())
        for (std::size_t i = 0; i < steps.size(); ++i) {
          std::vector<Step> mutated = steps;
          if (!mutation.apply(mutated, i, schedule, rank)) continue;
          expect_caught(compiled.check_with(rank, mutated), name(schedule) + ": " + mutation.name + " in step " +
                                                                std::to_string(i) + " of rank " + std::to_string(rank));
        }
    }
  });
}

TEST(PlantedFault, OfReducingInAnotherOrderOnOneRankIsCaught) {
  const Schedule schedule = one_round(4);
  std::vector<Step> steps = schedule.program(0);  // 3 sends, then 1, 2 and 3 are added in this order
  std::swap(steps[4].peer, steps[5].peer);
  const Verdict verdict = verify(with_program(schedule, 0, steps), options);
  EXPECT_THAT(verdict.problem, testing::HasSubstr("reduced in another order"));
}

TEST(PlantedFault, OfACircleOfWaitsNamesItsRanks) {
  Schedule schedule = ring(Collective::all_gather, 3);
  // Everybody hears before speaking: the first send passes on what the first receive brings.
  schedule.program = [](Rank rank) {
    const Rank next = (rank + 1) % 3;
    const Rank previous = (rank + 2) % 3;
    const auto chunk = static_cast<std::uint32_t>(previous);
    return std::vector<Step>{{Action::recv, previous, {}, output(chunk), 0},
                             {Action::send, next, output(chunk), {}, 0}};
  };
  const Verdict verdict = verify(schedule, options);
  EXPECT_THAT(verdict.problem, testing::HasSubstr("deadlock"));
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) EXPECT_THAT(verdict.problem, testing::HasSubstr(rank));
}

// ---- Faults of the compiler: one instruction of one rank is wrong.

// Calls `visit(list, i, what)` for each instruction of each rank, in copies that it may spoil.
template <class Visit>
void for_each_instruction(Compiled compiled, Visit visit) {
  ASSERT_TRUE(compiled.check().ok) << compiled.check().problem;
  for (std::size_t rank = 0; rank < compiled.programs.size(); ++rank)
    for (const auto list : {&Program::sends, &Program::receives}) {
      const std::vector<Instruction> sound = compiled.programs[rank].*list;
      for (std::size_t i = 0; i < sound.size(); ++i) {
        const std::string where = name(compiled.schedule) + ", " + (compiled.how.in_place ? "in place, " : "") +
                                  "rank " + std::to_string(rank) + ", " +
                                  (list == &Program::sends ? "send " : "receive ") + std::to_string(i) + ": ";
        visit(sound, i, [&](const std::string& what, auto spoil) {
          spoil(compiled.programs[rank].*list);
          expect_caught(compiled.check(), where + what);
          compiled.programs[rank].*list = sound;
        });
      }
    }
}

template <class Visit>
void for_each_compiled(Visit visit) {
  for (const Rank world : {2, 4, 5})
    for_each_schedule(world, 0, [&](const Schedule& schedule) {
      const std::size_t count = moves_whole_vector(schedule.collective) ? 41 : 9;
      const std::size_t buffered_slices = schedule.buffered_in_place ? 1 : 0;
      for (const bool in_place : places(schedule))
        for_each_instruction(Compiled(schedule, in_place, count, buffered_slices), visit);
    });
}

TEST(PlantedFault, OfAMissingWaitIsCaught) {
  int planted = 0;
  for_each_compiled([&](const std::vector<Instruction>& list, std::size_t i, auto expect) {
    std::uint32_t waited = 0;  // by those before, whose waits hold for this one as well
    for (std::size_t before = 0; before < i; ++before) waited = std::max(waited, list[before].after);
    if (list[i].after <= waited) return;
    ++planted;
    expect("no wait", [&](std::vector<Instruction>& spoilt) {
      // Later instructions would repair it for themselves alone: the fault is in this one.
      spoilt[i].after = waited;
    });
  });
  EXPECT_GT(planted, 500);
}

TEST(PlantedFault, OfSwappedTransfersOnALinkIsCaught) {
  int planted = 0;
  for_each_compiled([&](const std::vector<Instruction>& list, std::size_t i, auto expect) {
    if (i + 1 == list.size() || list[i].peer != list[i + 1].peer || list[i].peer < 0) return;
    ++planted;
    expect("swapped with the next", [&](std::vector<Instruction>& spoilt) {
      std::swap(spoilt[i], spoilt[i + 1]);
      // What they say of their link is right: the fault is in what they do.
      std::swap(spoilt[i].first_on_link, spoilt[i + 1].first_on_link);
      spoilt[i].link_end = list[i].link_end - list[i].bytes + spoilt[i].bytes;
      spoilt[i + 1].link_end = list[i + 1].link_end;
    });
  });
  EXPECT_GT(planted, 500);
}

TEST(PlantedFault, InAnyFieldOfAnInstructionIsCaught) {
  for_each_compiled([](const std::vector<Instruction>& list, std::size_t i, auto expect) {
    const Instruction& sound = list[i];
    const bool transfer = sound.action != Action::copy && sound.action != Action::reduce;
    const bool reads = sound.action != Action::recv;
    const bool writes = sound.action != Action::send;
    if (transfer) {
      expect("a wrong first_on_link", [&](auto& spoilt) { spoilt[i].first_on_link = !sound.first_on_link; });
      expect("a wrong link_end", [&](auto& spoilt) { spoilt[i].link_end += verified_element_bytes; });
      expect("a wrong link", [&](auto& spoilt) { spoilt[i].link += 1; });
    }
    if (reads) expect("a wrong place to read", [&](auto& spoilt) { spoilt[i].from += verified_element_bytes; });
    if (writes && sound.to_buffer != Buffer::scratch)
      expect("a wrong place to write", [&](auto& spoilt) { spoilt[i].to += verified_element_bytes; });
    if (reads) expect("a split element", [&](auto& spoilt) { spoilt[i].from += 1; });
    if (sound.action == Action::recv_reduce && sound.answer != 0) {
      expect("the answer before", [&](auto& spoilt) { spoilt[i].answer += sound.answer > 1 ? -1 : 1; });
      expect("the answer behind", [&](auto& spoilt) { spoilt[i].answer += 1; });
    }
    expect("a wait that never ends", [&](auto& spoilt) { spoilt[i].after = 1u << 30; });
  });
}

// Whose end is beyond what a number holds, and so seems to lie before the buffer's.
TEST(PlantedFault, OfAnOffsetThatWrapsAroundIsCaught) {
  const Schedule schedule = ring(Collective::all_reduce, 2);
  std::vector<Layout> layouts;
  std::vector<Program> programs;
  for (Rank rank = 0; rank < 2; ++rank) {
    layouts.push_back(even_layout(schedule, rank, 8, 4));
    programs.push_back(compile(schedule, rank, layouts.back(), {.element_bytes = 4, .slice_bytes = 16}));
  }
  Instruction& send = programs[1].sends[0];
  send.from = 0 - send.bytes;
  const Verdict verdict = verify(schedule, layouts, programs, options);
  EXPECT_FALSE(verdict.ok);
  EXPECT_THAT(verdict.problem, testing::HasSubstr("leaves its buffer"));
}

TEST(PlantedFault, OfAnAnswerThatIsExpectedElsewhereIsCaught) {
  Compiled compiled(ring(Collective::all_reduce, 2), false, 41, 0);
  int planted = 0;
  for (Instruction& send : compiled.programs[0].sends) {
    if (send.answer == 0) continue;
    const std::uint32_t sound = send.answer;
    for (const std::uint32_t wrong : {sound - 1, sound + 1, 1000u}) {
      if (wrong == 0) continue;
      ++planted;
      send.answer = wrong;
      expect_caught(compiled.check(), "an answer in receive " + std::to_string(wrong));
    }
    send.answer = sound;
  }
  EXPECT_GT(planted, 5);
}

TEST(PlantedFault, InTheTotalsOfALinkIsCaught) {
  Compiled compiled(ring(Collective::all_reduce, 3), false, 41, 0);
  compiled.programs[1].bytes_to[0].second += 4;
  EXPECT_THAT(compiled.check().problem, testing::HasSubstr("rank 1 has wrong totals"));
}

}  // namespace
}  // namespace ranvier
