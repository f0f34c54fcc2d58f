// What ranks ask each other when an operation is about to run out of time: whether the rank that is waited for has
// called it, and what that one is in instead. Certain deadlocks cannot be told from threads that are late, so a timeout
// stays the arbiter; what ranks tell each other here is what its error says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "base/rank_names.h"
#include "ranvier/types.h"

namespace ranvier::engine {

struct Question {
  enum class About : std::uint8_t { collective, message, past };

  std::uint32_t number = 0;    // which its answer carries
  std::uint32_t sequence = 0;  // of the collective; of the past: how many calls are known to be the same
  std::uint32_t subject = 0;   // the asker's number of what it asks for
  About about = About::collective;
  std::uint8_t unused[3] = {};
};
static_assert(sizeof(Question) == 16 && std::has_unique_object_representations_v<Question>);

// Its fixed part; text goes with it.
struct Answer {
  enum class State : std::uint8_t { unknown, not_called, under_way, ended };

  std::uint32_t number = 0;
  State state = State::unknown;
  std::uint8_t is_elsewhere = 0;  // 1: the text names what it is in instead, …
  std::uint8_t unused[2] = {};
  Rank waits_for = -1;         // of one that is under way: for whom it waits there; -1: not known
  std::uint32_t sequence = 0;  // … of which the first is a collective with this number, …
  std::uint64_t group = 0;     // … in this group, see Siblings::number_of; 0: a message, or in a group without a name
};
static_assert(sizeof(Answer) == 24 && std::has_unique_object_representations_v<Answer>);

// What has been found out so far: who is in the way of an operation, and what it said.
struct Finding {
  Rank rank = -1;
  Answer answer = {};
  std::string text = {};
};

// How an error goes on behind "rank 0 waited 5 s for rank 1 in all_reduce #3": what `finding` says of that, and what to
// do. `called_elsewhere`: whether this rank has called what the other one is in instead; empty where it cannot know.
std::string explanation(Rank self, const std::optional<Finding>& finding, std::optional<bool> called_elsewhere,
                        const RankNames& rank_name);

}  // namespace ranvier::engine
