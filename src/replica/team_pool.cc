#include "replica/team_pool.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/thread.h"

namespace ranvier::replica {
namespace {

constexpr std::uint64_t first_tag = 0x7465616d'00000000;  // "team"; apart from what a program sends itself

std::size_t index_of(Rank rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Team::Team(Communicator& everybody) : comm_(&everybody), members_(index_of(everybody.world())) {
  std::iota(members_.begin(), members_.end(), 0);
}
Team::Team(std::unique_ptr<Communicator> own, std::vector<Rank> members)
    : own_(std::move(own)), comm_(own_.get()), members_(std::move(members)) {}

bool Team::spans(const Groups& nodes) const {
  return std::ranges::any_of(members_,
                             [&](Rank rank) { return nodes[index_of(rank)] != nodes[index_of(members_.front())]; });
}

void Team::add_sent(std::vector<std::uint64_t>& by_rank) const {
  for (Rank peer = 0; peer < comm_->world(); ++peer)
    by_rank[index_of(members_[index_of(peer)])] += comm_->bytes_sent_to(peer);
}

Team* TeamPool::team(const Groups& colors) {
  if (is_forming_) take_formed();
  const auto found = teams_.find(colors);
  if (found != teams_.end()) return found->second.get();
  return teams_.emplace(colors, form(colors, first_tag + number_++)).first->second.get();
}

std::unique_ptr<Team> TeamPool::form(const Groups& colors, std::uint64_t tag) const {
  const int own = colors[index_of(comm_.rank())];
  if (own < 0) return nullptr;
  std::vector<Rank> members;
  for (Rank rank = 0; rank < comm_.world(); ++rank)
    if (colors[index_of(rank)] == own) members.push_back(rank);
  return std::make_unique<Team>(comm_.create_group(members, tag), members);
}

// ---- Beforehand.

// All go through them in the same order, and none of a list shares a rank with another: nobody waits for who waits for
// him.
void TeamPool::prepare(const std::vector<Groups>& colors) {
  if (is_forming_) take_formed();
  std::vector<Groups> missing;
  for (const Groups& each : colors)
    if (!teams_.contains(each) && std::ranges::find(missing, each) == missing.end()) missing.push_back(each);
  if (missing.empty()) return;
  is_forming_ = true;
  state_ = State::forming;
  const std::uint64_t tag = first_tag + number_;
  number_ += missing.size();
  thread_ = start_thread<std::jthread>("forming groups", [this, missing = std::move(missing), tag] {
    try {
      for (std::size_t i = 0; i < missing.size(); ++i) formed_.emplace(missing[i], form(missing[i], tag + i));
      state_ = State::formed;
    } catch (...) {
      failure_ = std::current_exception();
      state_ = State::failed;
    }
  });
}

void TeamPool::tell() {
  told_ = std::make_shared<std::array<std::int64_t, 1>>(std::array{static_cast<std::int64_t>(state_.load())});
  telling_ = comm_.start({.collective = Collective::all_reduce,
                          .input = ConstTypedSpan(told_->data(), 1, DType::i64),
                          .output = TypedSpan(told_->data(), 1, DType::i64),
                          .op = ReduceOp::min});
  telling_->on_done([kept = told_] {});
}

// Who is lost meanwhile is noticed by all here; what else has failed is this rank's to say.
bool TeamPool::all_are_ready(Hear hear) {
  if (!is_forming_) return true;
  if (!telling_) {
    tell();
    if (hear == Hear::later) return false;
  }
  telling_->wait();
  telling_.reset();
  const auto least = static_cast<State>(told_->front());
  if (least != State::formed) {
    if (state_ == State::failed) take_formed();
    if (hear == Hear::later) tell();
    return false;
  }
  take_formed();
  return true;
}

// Waits for it. What has failed is thrown again.
void TeamPool::take_formed() {
  if (telling_) telling_->wait();
  telling_.reset();
  thread_.join();
  is_forming_ = false;
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
  teams_.merge(formed_);
  formed_.clear();
}

void TeamPool::keep_only(const Groups& colors) {
  if (is_forming_) take_formed();
  std::erase_if(teams_, [&](const auto& each) {
    if (each.first == colors) return false;
    if (each.second) {
      each.second->add_sent(sent_before_);
      losses_before_ += each.second->comm().losses();
    }
    return true;
  });
}

// ---- What they have carried.

std::pair<std::uint64_t, std::uint64_t> TeamPool::bytes(const Groups& nodes) const {
  auto sent = sent_before_;
  everybody_.add_sent(sent);
  for (const auto& [colors, team] : teams_)
    if (team) team->add_sent(sent);
  std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
  for (std::size_t peer = 0; peer < sent.size(); ++peer)
    (nodes[peer] == nodes[index_of(comm_.rank())] ? sum.first : sum.second) += sent[peer];
  return sum;
}

LossCounts TeamPool::losses() const {
  LossCounts sum = losses_before_;
  sum += everybody_.comm().losses();
  for (const auto& [colors, team] : teams_)
    if (team) sum += team->comm().losses();
  return sum;
}

}  // namespace ranvier::replica
