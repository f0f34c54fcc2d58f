#include "engine/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/parts.h"
#include "base/rank_names.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

// Of what a rank tells of itself when ranks meet: a tuning table may be part of it, which is a small file.
constexpr std::int64_t most_text = 32 << 20;

// How long that is, as `from` says of it, or of all of `texts` together.
std::size_t believable(std::int64_t length, Rank from, const Communicator& whole, std::size_t texts = 1) {
  if (length < 0 || length / most_text >= static_cast<std::int64_t>(texts))
    throw Error(
        ErrorKind::mismatch,
        fmt::format("{} tells {} B of itself to form a group, which cannot be; is another ranvier running there?",
                    whole.rank_name(from), length),
        from);
  return static_cast<std::size_t>(length);
}

// What a rank tells of itself to those with whom it forms a group.
struct Teller {
  Rank rank = 0;
  std::vector<Rank> members;  // empty behind a first one: the same
  std::string text;
};

void append(std::vector<std::byte>& all, const Teller& teller, bool with_members = true) {
  append_part(all, std::as_bytes(std::span(&teller.rank, 1)));
  append_part(all, with_members ? std::as_bytes(std::span(teller.members)) : ConstBytes());
  append_text(all, teller.text);
}

[[noreturn]] void refuse_sender(Rank from, const Communicator& whole) {
  throw Error(ErrorKind::mismatch,
              fmt::format("what {} has sent is nothing that forms a group; give create_group a tag of its own",
                          whole.rank_name(from)),
              from);
}

// Of several behind each other, as `from` has sent them.
std::vector<Teller> tellers_in(ConstBytes all, Rank from, const Communicator& whole) {
  const auto is_rank = [&](Rank rank) { return rank >= 0 && rank < whole.world(); };
  std::vector<Teller> tellers;
  bool makes_sense = !all.empty();
  try {
    while (!all.empty()) {
      Teller& next = tellers.emplace_back();
      take_values(all, std::span(&next.rank, 1));
      const ConstBytes members = take_part(all);
      next.members.resize(members.size() / sizeof(Rank));
      if (!next.members.empty()) std::memcpy(next.members.data(), members.data(), next.members.size() * sizeof(Rank));
      next.text = take_text(all);
      makes_sense &= is_rank(next.rank) && std::ranges::all_of(next.members, is_rank);
    }
  } catch (const Error&) {
    makes_sense = false;
  }
  if (!makes_sense || tellers.front().members.empty()) refuse_sender(from, whole);
  return tellers;
}

// Null where all name the same members in the same order.
const Teller* who_differs(const std::vector<Teller>& tellers, const std::vector<Rank>& members) {
  const auto differs = [&](const Teller& each) { return !each.members.empty() && each.members != members; };
  const auto found = std::ranges::find_if(tellers, differs);
  return found == tellers.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_members(const Communicator& whole, const std::vector<Rank>& members, const Teller& other) {
  throw Error(ErrorKind::mismatch,
              fmt::format("{} forms a group of the ranks {} where {} forms one of {}; call create_group with the same "
                          "ranks in the same order on all of them, and with another tag than this",
                          whole.rank_name(whole.rank()), fmt::join(members, ", "), whole.rank_name(other.rank),
                          fmt::join(other.members, ", ")),
              other.rank);
}

}  // namespace

std::vector<Rank> members_of(Communicator& whole, int color, int key) {
  std::vector<std::int64_t> choices(2 * static_cast<std::size_t>(whole.world()));
  const std::array<std::int64_t, 2> choice{color, key};
  whole.all_gather(choice, choices);

  std::vector<Rank> members;
  for (Rank peer = 0; peer < whole.world(); ++peer)
    if (choices[2 * static_cast<std::size_t>(peer)] == color) members.push_back(peer);
  std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
    return choices[2 * static_cast<std::size_t>(a) + 1] < choices[2 * static_cast<std::size_t>(b) + 1];
  });
  return members;
}

CommunicatorOptions options_of_part(const CommunicatorOptions& whole, const std::vector<Rank>& members,
                                    const std::string& name) {
  CommunicatorOptions options = whole;
  options.world_ranks = world_ranks_of(members, whole.world_ranks);
  options.name += (whole.name.empty() ? "" : ", ") + name;
  // Dims suit one world only, and so does a topology.
  options.algorithm.resize(std::min(options.algorithm.find(':'), options.algorithm.size()));
  options.topology.clear();
  return options;
}

Exchange exchange_over(Communicator& whole, std::vector<Rank> members) {
  return [&whole, members = std::move(members)](const std::string& mine, std::chrono::steady_clock::time_point) {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(whole.world()));
    const std::array<std::int64_t, 1> length{static_cast<std::int64_t>(mine.size())};
    whole.all_gather(length, lengths);
    std::vector<std::size_t> splits;
    for (Rank rank = 0; rank < whole.world(); ++rank)
      splits.push_back(believable(lengths[static_cast<std::size_t>(rank)], rank, whole));
    std::string all(std::reduce(splits.begin(), splits.end()), '\0');
    whole.run({.collective = Collective::all_gather,
               .input = ConstTypedSpan(mine.data(), mine.size(), DType::u8),
               .output = TypedSpan(all.data(), all.size(), DType::u8),
               .output_splits = splits});
    std::vector<std::string> by_rank;
    std::size_t offset = 0;
    for (const std::size_t bytes : splits) {
      by_rank.push_back(all.substr(offset, bytes));
      offset += bytes;
    }
    std::vector<std::string> texts;
    for (const Rank member : members) texts.push_back(by_rank[static_cast<std::size_t>(member)]);
    return texts;
  };
}

// By the lowest of them, who hears all and tells all: whatever the order in which each names them.
Exchange exchange_between(Communicator& whole, std::vector<Rank> members, std::uint64_t tag) {
  return [&whole, members = std::move(members), tag](const std::string& mine, std::chrono::steady_clock::time_point) {
    const auto send = [&](ConstBytes message, Rank to) {
      const std::array<std::int64_t, 1> length{static_cast<std::int64_t>(message.size())};
      whole.send(length, to, tag);
      whole.send({message.data(), message.size(), DType::u8}, to, tag);
    };
    const auto receive = [&](Rank from) {
      std::array<std::int64_t, 1> length{};
      whole.recv(length, from, tag);
      std::vector<std::byte> message(believable(length[0], from, whole, members.size()));
      whole.recv({message.data(), message.size(), DType::u8}, from, tag);
      return tellers_in(message, from, whole);
    };
    const Rank self = whole.rank(), first = std::ranges::min(members);
    const Teller own{.rank = self, .members = members, .text = mine};
    std::vector<std::byte> all;
    append(all, own);
    std::vector<Teller> tellers;
    if (self != first) {
      send(all, first);
      tellers = receive(first);
      if (const Teller* const other = who_differs(tellers, members)) refuse_members(whole, members, *other);
    } else {
      tellers.push_back(own);
      for (const Rank member : members)
        if (member != first) tellers.push_back(receive(member).front());
      const Teller* const other = who_differs(tellers, members);
      std::set<Rank> waiting(members.begin(), members.end());
      if (other != nullptr) {
        append(all, *other);
        for (const Teller& each : tellers)  // others for whom this rank is the lowest
          if (std::ranges::min(each.members) == self) waiting.insert(each.members.begin(), each.members.end());
      } else {
        for (const Teller& each : std::span(tellers).subspan(1)) append(all, each, false);
      }
      waiting.erase(self);
      for (const Rank each : waiting) send(all, each);
      if (other != nullptr) refuse_members(whole, members, *other);
    }
    std::map<Rank, std::string> by_rank;
    for (Teller& each : tellers) by_rank.emplace(each.rank, std::move(each.text));
    std::vector<std::string> texts;
    for (const Rank member : members) {
      const auto found = by_rank.find(member);
      if (found == by_rank.end()) refuse_sender(first, whole);
      texts.push_back(std::move(found->second));
    }
    return texts;
  };
}

}  // namespace ranvier::engine
