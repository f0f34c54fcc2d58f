// Every rank's text to every rank through a store that never forgets. A launcher that restarts a job, as torchrun does,
// hands the new ranks the store of the old ones, with the old ranks' texts in it; whoever reads those connects to
// nobody. So each rank puts a mark on its text that no earlier one had, and then says in the store what it saw of all.
// It has finished when all ranks say that they saw what it saw: its own mark is in that, and so nobody's word is an old
// one. Costs two writes and 2 world reads a rank, and again as many for each time it finds that somebody saw an older
// text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "base/fnv.h"
#include "base/rank_names.h"
#include "base/secret.h"
#include "engine/rendezvous.h"
#include "engine/siblings.h"
#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t mark_length = 16;

std::string new_mark() {
  std::array<std::byte, mark_length / 2> random;
  fill_with_random(random);
  return hex(random);
}

std::string sum_of(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + '\0';
  return fmt::format("{:016x}", fnv1a(all));
}

// While a rank waits, it looks that often whether it waits in vain.
constexpr milliseconds patience(500);

// What a program has called the ranks that are to come, the time it gives them, and who knows of those that will not.
struct Expected {
  Rank world;
  RankNames names;
  std::string timeout_name;
  std::shared_ptr<Siblings> siblings;

  const char* kind() const { return names.is_world() ? "world" : "group"; }

  [[noreturn]] void throw_missing(const std::vector<Rank>& ranks) const {
    std::vector<std::string> numbers;
    for (const Rank rank : ranks) numbers.push_back(names.number(rank));
    throw Error(ErrorKind::timeout,
                fmt::format("rank{} {} of a {} of {} did not come in time; start all of them, or allow more time ({})",
                            ranks.size() > 1 ? "s" : "", fmt::join(numbers, ", "), kind(), world, timeout_name),
                ranks.front());
  }

  // Of a group whoever is in another group of this process's may be known to be lost. A world has other numbers.
  bool some_may_be_lost() const { return !names.is_world() && siblings; }
  void throw_if_lost() const {
    if (!some_may_be_lost()) return;
    Rank first = -1;
    Siblings::Loss why;
    for (Rank rank = 0; rank < world; ++rank)
      if (auto loss = siblings->loss_of(names.in_world(rank)); loss && (first < 0 || loss->at < why.at)) {
        first = rank;
        why = std::move(*loss);
      }
    if (first >= 0)
      throw Error(ErrorKind::peer_lost,
                  fmt::format("{} will not come to a {} of {}: {}", names(first), kind(), world, why.why), first);
  }
};

// What is set under `key`, waiting for it; nothing when the deadline passes first.
std::optional<std::string> read(Store& store, const std::string& key, const Expected& expected,
                                steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::max(std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()), milliseconds(0));
    const auto slice = expected.some_may_be_lost() ? std::min(left, patience) : left;
    try {
      return store.get(key, slice);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
    }
    expected.throw_if_lost();
    if (left == slice) return std::nullopt;
  }
}

// What all ranks have set under `name`, waiting for it.
std::vector<std::string> read_all(Store& store, std::string_view name, const Expected& expected,
                                  steady_clock::time_point deadline) {
  std::vector<std::string> all;
  std::vector<Rank> missing;
  for (Rank peer = 0; peer < expected.world; ++peer) {
    if (auto text = read(store, fmt::format("{}/{}", name, peer), expected, deadline))
      all.push_back(std::move(*text));
    else
      missing.push_back(peer);
  }
  if (!missing.empty()) expected.throw_missing(missing);
  return all;
}

}  // namespace

Exchange exchange_through(Store& store, Rank rank, Rank world, const CommunicatorOptions& options) {
  const Expected expected{.world = world,
                          .names = RankNames(options.world_ranks),
                          .timeout_name = options.join_timeout_name,
                          .siblings = options.siblings};
  return [&store, rank, world, expected](const std::string& mine, steady_clock::time_point deadline) {
    store.set(fmt::format("rank/{}", rank), new_mark() + mine);
    for (milliseconds nap(1);; nap = std::min(2 * nap, milliseconds(50))) {
      std::vector<std::string> all = read_all(store, "rank", expected, deadline);
      const std::string sum = sum_of(all);
      store.set(fmt::format("seen/{}", rank), sum);
      const std::vector<std::string> seen = read_all(store, "seen", expected, deadline);
      std::vector<Rank> behind;
      for (Rank peer = 0; peer < world; ++peer)
        if (seen[static_cast<std::size_t>(peer)] != sum) behind.push_back(peer);
      if (behind.empty()) {
        for (std::string& text : all) text.erase(0, mark_length);
        return all;
      }
      if (steady_clock::now() >= deadline) expected.throw_missing(behind);
      std::this_thread::sleep_for(nap);
    }
  };
}

}  // namespace ranvier::engine
