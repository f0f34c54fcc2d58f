#include "train/survivors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
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
constexpr milliseconds between_looks{20};
constexpr milliseconds to_be_told{5000};

std::string key_of(Rank rank) { return fmt::format("here/{}", rank); }
std::filesystem::path sign_of(const cli::WorldPlace& place, Rank rank) {
  return place.store / fmt::format("alive-{}", rank);
}

bool has_come(Store& store, Rank rank, milliseconds limit) {
  try {
    store.get(key_of(rank), limit);
    return true;
  } catch (const Error& late) {
    if (late.kind() != ErrorKind::timeout) throw;
    return false;
  }
}

bool is_dead(const cli::WorldPlace& place, Rank rank) {
  const Fd file(open(sign_of(place, rank).c_str(), O_RDONLY | O_CLOEXEC));
  return file && flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

// Of every rank whether it comes before `deadline`.
std::string gather(Store& store, const cli::WorldPlace& place, steady_clock::time_point deadline) {
  std::string members(static_cast<std::size_t>(place.world), absent);
  for (Rank rank = 0; rank < place.world; ++rank) {
    bool is_here = has_come(store, rank, milliseconds(0));
    while (!is_here && !is_dead(place, rank) && steady_clock::now() < deadline)
      is_here = has_come(store, rank, between_looks);
    if (is_here) members[static_cast<std::size_t>(rank)] = present;
  }
  // Who came early may have been lost while others were waited for.
  for (Rank rank = 0; rank < place.world; ++rank)
    if (is_dead(place, rank)) members[static_cast<std::size_t>(rank)] = absent;
  return members;
}

}  // namespace

SignOfLife::SignOfLife(const cli::WorldPlace& place)
    : file_(open(sign_of(place, place.rank).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
  if (!file_ || flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error(ErrorKind::config, fmt::format("cannot lock {}: {}; leave out --survive, or set TMPDIR to a directory "
                                               "that can",
                                               sign_of(place, place.rank).string(), std::strerror(errno)));
}

bool is_loss(const Error& why) { return why.kind() == ErrorKind::peer_lost || why.kind() == ErrorKind::aborted; }

cli::WorldPlace regroup(const cli::WorldPlace& place, int times, milliseconds limit) {
  cli::WorldPlace next = place;
  next.store /= fmt::format("without-{}", times);
  const auto store = file_store(next.store);
  store->set(key_of(place.rank), "");
  if (store->add("speakers", 1) == 1) store->set(members_key, gather(*store, place, steady_clock::now() + limit));
  const std::string members = store->get(members_key, limit + to_be_told);
  if (members.size() != static_cast<std::size_t>(place.world) ||
      members[static_cast<std::size_t>(place.rank)] != present)
    throw Error(ErrorKind::peer_lost,
                fmt::format("the others have gone on without rank {}, which came too late; give them more time for an "
                            "operation (--timeout)",
                            place.rank));
  next.rank = next.local_rank = static_cast<Rank>(std::count(members.begin(), members.begin() + place.rank, present));
  next.world = next.local_world = static_cast<Rank>(std::ranges::count(members, present));
  return next;
}

}  // namespace ranvier::train
