#include "integrations/trainer/rank_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/fnv.h"
#include "ranvier/error.h"

namespace ranvier::trainer {

std::vector<std::vector<std::byte>> collect_states(Communicator& comm, std::vector<std::byte> own) {
  const std::array<std::int64_t, 1> size{static_cast<std::int64_t>(own.size())};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(comm.world()));
  comm.all_gather(size, sizes);
  if (comm.rank() != 0) {
    comm.send({own.data(), own.size(), DType::u8}, 0);
    return {};
  }
  std::vector<std::vector<std::byte>> all{std::move(own)};
  for (Rank rank = 1; rank < comm.world(); ++rank) {
    auto& state = all.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
    comm.recv({state.data(), state.size(), DType::u8}, rank);
  }
  return all;
}

std::vector<std::byte> hand_out_states(Communicator& comm, std::vector<std::vector<std::byte>> kept) {
  kept.resize(static_cast<std::size_t>(comm.world()));
  std::vector<std::int64_t> sizes;
  for (const auto& state : kept) sizes.push_back(static_cast<std::int64_t>(state.size()));
  comm.broadcast(sizes, 0);
  std::vector<std::byte>& own = kept[static_cast<std::size_t>(comm.rank())];
  own.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(comm.rank())]));
  if (comm.rank() != 0) comm.recv({own.data(), own.size(), DType::u8}, 0);
  for (Rank rank = 1; comm.rank() == 0 && rank < comm.world(); ++rank) {
    const auto& state = kept[static_cast<std::size_t>(rank)];
    comm.send({state.data(), state.size(), DType::u8}, rank);
  }
  return std::move(own);
}

std::uint64_t hash_of(std::span<const float> values) {
  const auto is_nan = [](float each) { return std::isnan(each); };
  if (std::ranges::none_of(values, is_nan)) return fnv1a(std::as_bytes(values));
  std::vector<float> alike(values.begin(), values.end());
  std::ranges::replace_if(alike, is_nan, std::numeric_limits<float>::quiet_NaN());
  return fnv1a(std::as_bytes(std::span<const float>(alike)));
}

void require_equal(Communicator& comm, std::uint64_t mine, const std::string& what) {
  const std::array<std::int64_t, 1> own{static_cast<std::int64_t>(mine)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world()));
  comm.all_gather(own, all);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(ErrorKind::mismatch,
                  comm.rank_name(static_cast<Rank>(rank)) + " has other " + what + " than " + comm.rank_name(0),
                  static_cast<Rank>(rank));
}

}  // namespace ranvier::trainer
