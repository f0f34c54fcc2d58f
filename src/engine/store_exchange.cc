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
#include <thread>

#include "base/fnv.h"
#include "base/rank_names.h"
#include "base/secret.h"
#include "engine/rendezvous.h"
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

// What a program has called the ranks that are to come, and the time it gives them.
struct Expected {
  Rank world;
  bool is_group;
  RankNames names;
  std::string timeout_name;

  [[noreturn]] void throw_missing(const std::vector<Rank>& ranks) const {
    std::vector<std::string> numbers;
    for (const Rank rank : ranks) numbers.push_back(names.number(rank));
    throw Error(ErrorKind::timeout,
                fmt::format("rank{} {} of a {} of {} did not come in time; start all of them, or allow more time ({})",
                            ranks.size() > 1 ? "s" : "", fmt::join(numbers, ", "), is_group ? "group" : "world", world,
                            timeout_name),
                ranks.front());
  }
};

// What all ranks have set under `name`, waiting for it.
std::vector<std::string> read_all(Store& store, std::string_view name, const Expected& expected,
                                  steady_clock::time_point deadline) {
  std::vector<std::string> all;
  std::vector<Rank> missing;
  for (Rank peer = 0; peer < expected.world; ++peer) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    try {
      all.push_back(store.get(fmt::format("{}/{}", name, peer), std::max(left, milliseconds(0))));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::timeout) throw;
      missing.push_back(peer);
    }
  }
  if (!missing.empty()) expected.throw_missing(missing);
  return all;
}

}  // namespace

Exchange exchange_through(Store& store, Rank rank, Rank world, const CommunicatorOptions& options) {
  const Expected expected{.world = world,
                          .is_group = !options.world_ranks.empty(),
                          .names = RankNames(options.world_ranks),
                          .timeout_name = options.join_timeout_name};
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
