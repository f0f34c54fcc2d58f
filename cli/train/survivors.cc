#include "train/survivors.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "ranvier/store.h"

namespace ranvier::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* members_key = "members";
constexpr char present = '1';
constexpr char absent = '0';

std::string key_of(Rank rank) { return fmt::format("here/{}", rank); }

// Of every rank whether it comes before `deadline`.
std::string gather(Store& store, const cli::WorldPlace& place, Rank lost, steady_clock::time_point deadline) {
  std::string members(static_cast<std::size_t>(place.world), absent);
  for (Rank rank = 0; rank < place.world; ++rank) {
    if (rank == lost) continue;
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    try {
      store.get(key_of(rank), std::max(left, milliseconds(1)));
      members[static_cast<std::size_t>(rank)] = present;
    } catch (const Error& late) {
      if (late.kind() != ErrorKind::timeout) throw;
    }
  }
  return members;
}

}  // namespace

// A group of workers numbers them otherwise, and one whose loss it has felt first may be a victim as well.
Error loss_of(Communicator& comm, const Error& why, milliseconds dead_after) {
  const auto is_loss = [](const Error& each) {
    return each.kind() == ErrorKind::peer_lost || each.kind() == ErrorKind::aborted;
  };
  if (is_loss(why)) try {
      comm.barrier({.timeout = 2 * dead_after});
    } catch (const Error& known) {
      if (is_loss(known)) return known;
    }
  throw why;
}

cli::WorldPlace regroup(const cli::WorldPlace& place, const Error& why, int times, milliseconds limit) {
  cli::WorldPlace next = place;
  next.store /= fmt::format("without-{}", times);
  const auto store = file_store(next.store);
  store->set(key_of(place.rank), "");
  // Who only tells what another one has told may name a survivor.
  const Rank lost = why.kind() == ErrorKind::peer_lost ? why.culprit() : -1;
  if (store->add("speakers", 1) == 1) store->set(members_key, gather(*store, place, lost, steady_clock::now() + limit));
  const std::string members = store->get(members_key, 2 * limit);
  if (members.size() != static_cast<std::size_t>(place.world) ||
      members[static_cast<std::size_t>(place.rank)] != present)
    throw Error(ErrorKind::peer_lost,
                fmt::format("the others took rank {} for lost, and go on without it: {}", place.rank, why.what()));
  next.rank = next.local_rank = static_cast<Rank>(std::count(members.begin(), members.begin() + place.rank, present));
  next.world = next.local_world = static_cast<Rank>(std::ranges::count(members, present));
  return next;
}

}  // namespace ranvier::train
