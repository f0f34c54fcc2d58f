// What a rank tells the others about itself when they meet: fields with their lengths in front, as text in a store that
// others may write to as well.
#pragma once

#include <string>
#include <string_view>

#include "base/rank_names.h"
#include "ranvier/types.h"

namespace ranvier::engine {

struct Card {
  std::string refusal = {};    // why it does not come; empty if it does
  std::string purpose = {};    // as CommunicatorOptions has it, …
  std::string transport = {};  // … as is this
  std::string epoch = {};
  std::string members = {};                             // of a group, a short sum of their numbers in the world
  std::string algorithm = {};                           // as CommunicatorOptions has it
  std::string tuning = {};                              // a short sum of the table, …
  std::string table = {};                               // … or, where all follow this rank's, its text
  std::string measure = {}, learn = {}, topology = {};  // likewise as CommunicatorOptions has them
  std::string security = {};                            // by which proof connections between hosts begin, …
  std::string fingerprint = {};                         // … and of which key or authority
  std::string silence = {};                             // after how much of it a rank is suspected and given up
  std::string host = {};                                // what tells this one, or this node, from others
  std::string control = {}, inside = {}, between = {};  // addresses; empty where there is none

  std::string text() const;
  // Throws Error{mismatch} for what is no card, or one of another version, that `rank` has left.
  static Card parse(std::string_view text, Rank rank, const RankNames& names);
};

}  // namespace ranvier::engine
