#include "engine/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "base/rank_names.h"

namespace ranvier::engine {

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

CommunicatorOptions options_of_part(const CommunicatorOptions& whole, const std::vector<Rank>& members, int color,
                                    std::uint32_t number) {
  CommunicatorOptions options = whole;
  options.world_ranks = world_ranks_of(members, whole.world_ranks);
  options.name += fmt::format("{}color {} of split {}", whole.name.empty() ? "" : ", ", color, number);
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
    const std::vector<std::size_t> splits(lengths.begin(), lengths.end());
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

}  // namespace ranvier::engine
