// Every rank's text to every rank through a store that never forgets. A launcher that restarts a job, as torchrun does,
// hands the new ranks the store of the old ones, with the old ranks' texts in it; whoever reads those connects to
// nobody. So each rank puts a mark on its text that no earlier one had, and then says in the store what it saw of all.
// It has finished when all ranks say that they saw what it saw: its own mark is in that, and so nobody's word is an old
// one. Costs two writes and 2 world reads a rank, and again as many for each time it finds that somebody saw an older
// text.
//
// Ranks of a group are of one program, which may have named other ranks to some of them: these wait for ranks that will
// not come. Who waits says whom it has found that came to a group of another size, and who finds itself in such a word
// knows that both are here now.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

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

// While a rank waits, it looks that often whether it waits in vain, …
constexpr milliseconds patience(500);
// … and that often into the store, for so many peers; of a larger group that others have come to for so many more than
// its own group has: a store may say anything.
constexpr milliseconds between_looks_into_store(1000);
constexpr Rank peers_a_look = 8;
constexpr unsigned long most_strangers = 1024;

// What a program has called the ranks that are to come, the time it gives them, and who knows of those that will not.
struct ExpectedWorld {
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
                            what_to_do(ranks, texts), timeout_name),
                ranks.front());
  }
  std::string what_to_do(const std::vector<Rank>& missing, const std::vector<std::optional<std::string>>& texts) const {
    const bool have_left_texts = std::all_of(missing.begin(), missing.end(), [&](Rank rank) {
      const auto& text = texts[static_cast<std::size_t>(rank)];
      return text && !other_size(text);
    });
    return have_left_texts ? "what is theirs in the store is of an earlier attempt or another job: start all of them, "
                             "and give each job a store of its own"
                           : who_came_elsewhere(texts);
  }
  // It may have done so in an earlier attempt: nobody who comes in time is refused for that.
  std::string who_came_elsewhere(const std::vector<std::optional<std::string>>& texts) const {
    for (std::size_t peer = 0; peer < texts.size(); ++peer)
      if (const auto other = other_size(texts[peer]))
        return fmt::format("{} came to a {} of {}: start all of them with the same number of ranks",
                           names(static_cast<Rank>(peer)), kind(), *other);
    return "start all of them";
  }
  // Of the world or group that whoever left this text has come to, where it is of another size.
  std::optional<unsigned long> other_size(const std::optional<std::string>& text) const {
    if (!text || text->size() < head_length) return std::nullopt;
    const std::string theirs = text->substr(mark_length, size_length);
    if (theirs == size()) return std::nullopt;
    return std::strtoul(theirs.c_str(), nullptr, 16);
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

[[noreturn]] void throw_doubled(const ExpectedWorld& expected, Rank rank) {
  throw Error(ErrorKind::config,
              fmt::format("another process came as {} as well; {}", expected.names(rank),
                          expected.names.is_world() ? "give each a rank of its own"
                                                    : "name the same ranks of a group on all of them"),
              rank);
}

// What is set under `key` by now.
std::optional<std::string> find(Store& store, const std::string& key) {
  try {
    return store.get(key, milliseconds(0));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
    return std::nullopt;
  }
}

// What a rank looks at while it waits for others: whether it does so in vain.
class Watch {
 public:
  // `again` stands in front of all names, and `text` is what this rank has left.
  Watch(Store& store, const ExpectedWorld& expected, const std::function<void()>& check_interrupt, Rank rank,
        std::string again, std::string text)
      : store_(store),
        check_interrupt_(check_interrupt),
        expected_(expected),
        rank_(rank),
        again_(std::move(again)),
        text_(std::move(text)),
        next_(rank),
        peers_(expected.world) {}

  // Throws what it finds; looks into the store now and then.
  void look() {
    if (check_interrupt_) check_interrupt_();
    if (expected_.some_may_be_lost()) {
      look_for_lost();
    } else if (is_due()) {
      throw_if_replaced();
    }
  }

 private:
  bool is_due() {
    if (steady_clock::now() < due_) return false;
    due_ = steady_clock::now() + between_looks_into_store;
    return true;
  }

  void look_for_lost() {
    try {
      expected_.throw_if_lost();
    } catch (const Error&) {  // who leaves may have found what this rank is about to find
      if (const auto others = find_others()) throw *others;
      throw;
    }
    if (!is_due()) return;
    throw_if_replaced();
    // Once more, for those who come just now.
    if (const auto others = find_others(); others && std::exchange(knew_, true)) throw *others;
  }

  std::string key(std::string_view name, Rank rank) const { return fmt::format("{}{}/{}", again_, name, rank); }

  void throw_if_replaced() const {
    const auto found = find(store_, key("rank", rank_));
    if (!found)
      throw Error(
          ErrorKind::unreachable,
          fmt::format("what {} left in the store is gone, and nobody can meet it; keep the store, or its folder, "
                      "until all ranks of a {} have met",
                      expected_.names(rank_), expected_.kind()),
          rank_);
    if (*found == text_) return;
    // So that the other one learns it, too. Who comes as a rank of a world may be that one's next attempt, which this
    // one, forgotten by a launcher, is not to end.
    if (!expected_.names.is_world()) store_.set(key("rank", rank_), text_);
    throw_doubled(expected_, rank_);
  }

  // That there are ranks here now that came to a group of another size. All ranks may wait here, and each asks the one
  // store: not for all peers at once.
  std::optional<Error> find_others() {
    std::optional<Error> found;
    for (Rank count = std::min(peers_, peers_a_look); count > 0; --count) {
      const Rank peer = next_ = (next_ + 1) % peers_;
      const auto text = find(store_, key("rank", peer));
      const auto theirs = peer == rank_ ? std::nullopt : expected_.other_size(text);
      if (!theirs) {
        elsewhere_.erase(peer);
        continue;
      }
      peers_ = std::max(
          peers_, static_cast<Rank>(std::min(*theirs, static_cast<unsigned long>(expected_.world) + most_strangers)));
      elsewhere_[peer] = text->substr(0, mark_length);
      const auto answer = find(store_, key("elsewhere", peer));
      if (!answer || answer->find(text_.substr(0, mark_length)) == std::string::npos) continue;
      found = Error(
          ErrorKind::mismatch,
          fmt::format("{} came to a group of {} and {} to one of {}; name the same ranks of a group on all of them",
                      expected_.names(rank_), expected_.world, expected_.names(peer), *theirs),
          peer);
    }
    std::string marks;
    for (const auto& [peer, mark] : elsewhere_) marks += mark;
    if (!marks.empty()) store_.set(key("elsewhere", rank_), marks);
    return found;
  }

  Store& store_;
  const std::function<void()>& check_interrupt_;
  const ExpectedWorld& expected_;
  const Rank rank_;
  const std::string again_, text_;
  steady_clock::time_point due_ = steady_clock::now() + between_looks_into_store;
  Rank next_;                              // before the first of the next look
  Rank peers_;                             // that there may be, by the largest group that anybody has come to
  std::map<Rank, std::string> elsewhere_;  // their marks
  bool knew_ = false;
};

// What `peer` has set under `name`, waiting for it; nothing when the deadline passes first.
std::optional<std::string> read(Store& store, std::string_view name, Rank peer, const ExpectedWorld& expected,
                                Watch& watch, steady_clock::time_point deadline) {
  const std::string key = fmt::format("{}/{}", name, peer);
  for (;;) {
    const auto left =
        std::max(std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()), milliseconds(0));
    const auto slice = std::min(left, patience);
    try {
      return store.get(key, slice);
    } catch (const Error& error) {
      // Where the store is in a process that waits no longer than this one, which ends when it has.
      if (error.kind() != ErrorKind::timeout)
        throw Error(error.kind(), fmt::format("{}; this was waiting for {} of a {} of {}", error.what(),
                                              expected.names(peer), expected.kind(), expected.world));
    }
    watch.look();
    if (left == slice) return std::nullopt;
  }
}

// What all ranks have set under `name`, waiting for it: of those who have not come nothing. `self` is read last.
std::vector<std::optional<std::string>> read_all(Store& store, std::string_view name, Rank self,
                                                 const ExpectedWorld& expected, Watch& watch,
                                                 steady_clock::time_point deadline) {
  std::vector<std::optional<std::string>> all(static_cast<std::size_t>(expected.world));
  for (Rank i = 1; i <= expected.world; ++i) {
    const Rank peer = (self + i) % expected.world;
    all[static_cast<std::size_t>(peer)] = read(store, name, peer, expected, watch, deadline);
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
  const ExpectedWorld expected{.world = world,
                               .names = RankNames(options.world_ranks),
                               .timeout_name = options.join_timeout_name,
                               .siblings = options.siblings};
  // Under names of their own: some ranks are at the next one while others still look whether all are through with this.
  return [&store, rank, expected, check_interrupt = options.check_interrupt, times = 0](
             const std::string& mine, steady_clock::time_point deadline) mutable {
    const std::string again = times == 0 ? "" : fmt::format("{}/", times);
    ++times;
    const std::string own = new_mark() + expected.size() + mine, texts_name = again + "rank",
                      seen_name = again + "seen";
    store.set(fmt::format("{}/{}", texts_name, rank), own);
    Watch watch(store, expected, check_interrupt, rank, again, own);
    for (milliseconds nap(1);; nap = std::min(2 * nap, milliseconds(50))) {
      const auto texts = read_all(store, texts_name, rank, expected, watch, deadline);
      // Before this rank says what it saw, which would overwrite the word of the other process, by which all may have
      // met.
      if (const auto& mine_now = texts[static_cast<std::size_t>(rank)]; mine_now && *mine_now != own)
        throw_doubled(expected, rank);
      const auto has_come = [](const std::string&) { return true; };
      if (const auto missing = where_not(texts, has_come); !missing.empty()) expected.throw_missing(missing, texts);
      auto behind = where_not(texts, [&](const std::string& text) { return !expected.other_size(text); });
      if (behind.empty()) {
        const std::string sum = sum_of(texts);
        store.set(fmt::format("{}/{}", seen_name, rank), sum);
        const auto seen = read_all(store, seen_name, rank, expected, watch, deadline);
        behind = where_not(seen, [&](const std::string& theirs) { return theirs == sum; });
      }
      if (behind.empty()) {
        std::vector<std::string> all;
        for (const auto& text : texts) all.push_back(text->substr(std::min(head_length, text->size())));
        return all;
      }
      watch.look();
      if (steady_clock::now() >= deadline) expected.throw_missing(behind, texts);
      std::this_thread::sleep_for(nap);
    }
  };
}

}  // namespace ranvier::engine
