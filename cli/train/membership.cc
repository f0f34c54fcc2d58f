#include "train/membership.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/file_lock.h"

namespace ranvier::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds between_looks{20};
constexpr milliseconds to_be_told{5000};

std::filesystem::path sign_of(const cli::WorldPlace& place, int number) {
  return place.store / fmt::format("alive-{}", number);
}

Fd show_life(const cli::WorldPlace& place, int number) {
  const auto path = sign_of(place, number);
  Fd file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  // Others may just be looking.
  const auto problem = file ? lock_until(file, LOCK_EX, steady_clock::now() + to_be_told)
                            : std::error_code(errno, std::generic_category());
  if (problem)
    throw Error(ErrorKind::config, fmt::format("cannot lock {}: {}; leave out --survive, or set TMPDIR to a directory "
                                               "that can",
                                               path.string(), problem.message()));
  return file;
}

std::optional<std::string> look_up(Store& store, const std::string& key, milliseconds limit) {
  try {
    return store.get(key, limit);
  } catch (const Error& late) {
    if (late.kind() != ErrorKind::timeout) throw;
    return std::nullopt;
  }
}

std::vector<int> numbers_up_to(int end) {
  std::vector<int> numbers(static_cast<std::size_t>(end));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<int> numbers_in(const std::string& line) {
  std::istringstream words(line);
  std::vector<int> numbers;
  for (int number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

bool is_in(const std::vector<int>& numbers, int number) { return std::ranges::find(numbers, number) != numbers.end(); }

std::string key_of(int meeting, const std::string& what) { return fmt::format("meeting-{}/{}", meeting, what); }
std::string arrival_of(int number) { return fmt::format("here/{}", number); }

}  // namespace

bool is_loss(const Error& why) { return why.kind() == ErrorKind::peer_lost || why.kind() == ErrorKind::aborted; }

// A line for each of its lists.
std::string Membership::text_of(const Record& record) {
  return fmt::format("{}\n{}\n", fmt::join(record.members, " "), fmt::join(record.newcomers, " "));
}

Membership::Record Membership::record_from(const std::string& text) {
  const std::size_t end = text.find('\n');
  return {.members = numbers_in(text.substr(0, end)), .newcomers = numbers_in(text.substr(std::min(end, text.size())))};
}

Membership::Membership(const cli::WorldPlace& place, int restarts)
    : start_(place),
      first_(place.world),
      most_(place.world + restarts),
      number_(place.restart == 0 ? place.rank : place.world + place.restart - 1),
      store_(file_store(place.store)),
      sign_(show_life(place, number_)),
      record_{.members = numbers_up_to(place.world), .newcomers = {}},
      place_(place) {}

// Whoever looks shares the lock, so that two who look do not take each other for the one that is looked for.
bool Membership::is_alive(int number) const {
  const Fd file(open(sign_of(start_, number).c_str(), O_RDONLY | O_CLOEXEC));
  return file && flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

bool Membership::has_come(int number, int meeting, milliseconds limit) const {
  return look_up(*store_, key_of(meeting, arrival_of(number)), limit).has_value();
}

bool Membership::has_ended() const { return cli::has_result(start_.store) || cli::has_nobody_left(start_.store); }

bool Membership::wait_for_result() const {
  const auto meets = [this](int each) { return has_come(each, meetings_ + 1, milliseconds(0)); };
  for (;; std::this_thread::sleep_for(between_looks)) {
    const bool may_report = is_alive(record_.members.front());  // first: it reports before it ends
    if (has_ended()) return true;
    if (!may_report || std::ranges::any_of(record_.members, meets)) return false;
  }
}

std::optional<Rank> Membership::first_lost() const {
  const auto dead = std::ranges::find_if(record_.members, [this](int each) { return !is_alive(each); });
  if (dead == record_.members.end()) return std::nullopt;
  return static_cast<Rank>(dead - record_.members.begin());
}

void Membership::require_all() const {
  if (const auto lost = first_lost())
    throw Error(ErrorKind::peer_lost, fmt::format("rank {} died on its way to the others", *lost), *lost);
}

std::vector<int> Membership::waiting() const {
  std::vector<int> all;
  for (int number = first_; number < most_; ++number)
    if (!is_in(record_.newcomers, number) && is_alive(number)) all.push_back(number);
  return all;
}

bool Membership::take_part_by(Record record) {
  record_ = std::move(record);
  const auto own = std::ranges::find(record_.members, number_);
  if (own == record_.members.end()) return false;
  place_ = start_;
  place_.store /= fmt::format("meeting-{}", meetings_);
  place_.rank = place_.local_rank = static_cast<Rank>(own - record_.members.begin());
  place_.world = place_.local_world = static_cast<Rank>(record_.members.size());
  return true;
}

bool Membership::wait_to_be_let_in() {
  if (!is_newcomer()) return true;
  for (;;) {
    // In this order: of members that are all dead there comes no record any more.
    const bool has_members = std::ranges::any_of(record_.members, [this](int each) { return is_alive(each); });
    if (const auto next = look_up(*store_, key_of(meetings_ + 1, "members"), between_looks)) {
      ++meetings_;
      if (take_part_by(record_from(*next))) return true;
      continue;
    }
    if (cli::has_result(start_.store)) return false;
    if (has_members) continue;
    cli::announce_nobody_left(start_.store);
    throw Error(ErrorKind::peer_lost,
                "all the workers have ended that this one was started to join, and they have left "
                "no result; what they say tells why");
  }
}

bool Membership::meet_anew(milliseconds limit) {
  ++meetings_;
  const std::string record_key = key_of(meetings_, "members");
  store_->set(key_of(meetings_, arrival_of(number_)), "");
  const Fd word = speakers_lock();
  const auto deadline = steady_clock::now() + limit + to_be_told;
  std::optional<std::string> record;
  while (!(record = look_up(*store_, record_key, between_looks))) {
    if (has_ended()) return false;
    if (steady_clock::now() >= deadline)
      throw Error(ErrorKind::timeout, fmt::format("the others have not said within {} s who goes on; give them more "
                                                  "time for an operation (--timeout)",
                                                  std::chrono::ceil<std::chrono::seconds>(limit).count()));
    if (flock(word.get(), LOCK_EX | LOCK_NB) != 0) continue;  // another one has the word
    if (look_up(*store_, record_key, milliseconds(0))) continue;
    const Record next = gather(steady_clock::now() + limit);
    if (has_ended()) return false;  // who was waited for had more to say than that it comes
    store_->set(record_key, text_of(next));
  }
  if (!take_part_by(record_from(*record)))
    throw Error(ErrorKind::peer_lost,
                fmt::format("the others have gone on without rank {}, which came too late; give them more time for an "
                            "operation (--timeout)",
                            place_.rank));
  return true;
}

Fd Membership::speakers_lock() const {
  const auto path = start_.store / fmt::format("speaker-{}", meetings_);
  Fd file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!file) throw Error(ErrorKind::config, fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  return file;
}

Membership::Record Membership::gather(steady_clock::time_point deadline) {
  Record next{.members = {}, .newcomers = record_.newcomers};
  for (const int number : record_.members) {
    bool is_here = has_come(number, meetings_, milliseconds(0));
    while (!is_here && is_alive(number) && steady_clock::now() < deadline)
      is_here = has_come(number, meetings_, between_looks);
    if (is_here) next.members.push_back(number);
  }
  // Who came early may have been lost while others were waited for.
  std::erase_if(next.members, [this](int each) { return !is_alive(each); });
  const auto added = waiting();
  next.members.insert(next.members.end(), added.begin(), added.end());
  next.newcomers.insert(next.newcomers.end(), added.begin(), added.end());
  return next;
}

}  // namespace ranvier::train
