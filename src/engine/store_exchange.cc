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
#include <cstdlib>
#include <functional>
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
constexpr std::size_t size_length = 8;  // hexadecimal digits of the world's size, behind the mark
constexpr std::size_t head_length = mark_length + size_length;

std::string new_mark() {
  std::array<std::byte, mark_length / 2> random;
  fill_with_random(random);
  return hex(random);
}

std::string sum_of(const std::vector<std::optional<std::string>>& texts) {
  std::string all;
  for (const auto& text : texts) all += *text + '\0';
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
  std::string size() const { return fmt::format("{:0{}x}", world, size_length); }

  // `texts`: what has been read of the first ranks.
  [[noreturn]] void throw_missing(const std::vector<Rank>& ranks,
                                  const std::vector<std::optional<std::string>>& texts) const {
    std::vector<std::string> numbers;
    for (const Rank rank : ranks) numbers.push_back(names.number(rank));
    throw Error(ErrorKind::timeout,
                fmt::format("rank{} {} of a {} of {} did not come in time; {}, or allow more time ({})",
                            ranks.size() > 1 ? "s" : "", fmt::join(numbers, ", "), kind(), world,
                            who_came_elsewhere(texts), timeout_name),
                ranks.front());
  }
  // It may have done so in an earlier attempt: nobody who comes in time is refused for that.
  std::string who_came_elsewhere(const std::vector<std::optional<std::string>>& texts) const {
    for (std::size_t peer = 0; peer < texts.size(); ++peer) {
      if (!texts[peer] || texts[peer]->size() < head_length) continue;
      const std::string theirs = texts[peer]->substr(mark_length, size_length);
      if (theirs != size())
        return fmt::format("{} came to a {} of {}: start all of them with the same number of ranks",
                           names(static_cast<Rank>(peer)), kind(), std::strtoul(theirs.c_str(), nullptr, 16));
    }
    return "start all of them";
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

// What all ranks have set under `name`, waiting for it: of those who have not come nothing. `self` is read last.
std::vector<std::optional<std::string>> read_all(Store& store, std::string_view name, Rank self,
                                                 const Expected& expected, steady_clock::time_point deadline) {
  std::vector<std::optional<std::string>> all(static_cast<std::size_t>(expected.world));
  for (Rank i = 1; i <= expected.world; ++i) {
    const Rank peer = (self + i) % expected.world;
    all[static_cast<std::size_t>(peer)] = read(store, fmt::format("{}/{}", name, peer), expected, deadline);
  }
  return all;
}

std::vector<Rank> where_not(const std::vector<std::optional<std::string>>& all,
                            const std::function<bool(const std::string&)>& is_right) {
  std::vector<Rank> ranks;
  for (std::size_t peer = 0; peer < all.size(); ++peer)
    if (!all[peer] || !is_right(*all[peer])) ranks.push_back(static_cast<Rank>(peer));
  return ranks;
}

}  // namespace

Exchange exchange_through(Store& store, Rank rank, Rank world, const CommunicatorOptions& options) {
  const Expected expected{.world = world,
                          .names = RankNames(options.world_ranks),
                          .timeout_name = options.join_timeout_name,
                          .siblings = options.siblings};
  // Under names of their own: some ranks are at the next one while others still look whether all are through with this.
  return [&store, rank, expected, times = 0](const std::string& mine, steady_clock::time_point deadline) mutable {
    const std::string again = times == 0 ? "" : fmt::format("{}/", times);
    ++times;
    const std::string own = new_mark() + expected.size() + mine, texts_name = again + "rank",
                      seen_name = again + "seen";
    store.set(fmt::format("{}/{}", texts_name, rank), own);
    for (milliseconds nap(1);; nap = std::min(2 * nap, milliseconds(50))) {
      const auto texts = read_all(store, texts_name, rank, expected, deadline);
      // Before this rank says what it saw, which would overwrite the word of the other process, by which all may have
      // met.
      if (const auto& mine_now = texts[static_cast<std::size_t>(rank)]; mine_now && *mine_now != own)
        throw Error(
            ErrorKind::config,
            fmt::format("another process came as {} as well; give each a rank of its own", expected.names(rank)), rank);
      const auto has_come = [](const std::string&) { return true; };
      if (const auto missing = where_not(texts, has_come); !missing.empty()) expected.throw_missing(missing, texts);
      const std::string sum = sum_of(texts);
      store.set(fmt::format("{}/{}", seen_name, rank), sum);
      const auto seen = read_all(store, seen_name, rank, expected, deadline);
      const auto behind = where_not(seen, [&](const std::string& theirs) { return theirs == sum; });
      if (behind.empty()) {
        std::vector<std::string> all;
        for (const auto& text : texts) all.push_back(text->substr(std::min(head_length, text->size())));
        return all;
      }
      if (steady_clock::now() >= deadline) expected.throw_missing(behind, texts);
      std::this_thread::sleep_for(nap);
    }
  };
}

}  // namespace ranvier::engine
