#include "exchange/gathered_slice.h"

#include <algorithm>

#include "kernel/vectors.h"

namespace ranvier {
namespace {

// Of a slice's plain twin, so that its messages are told from the codes'.
constexpr std::uint64_t plain_twin = std::uint64_t{1} << 60;

}  // namespace

bool all_gather_is_cheaper(const LinkModel& links, Rank world, double bytes) {
  const double peers = world - 1;
  const double byte = links.byte + links.between;
  const double of_gather = links.latency + peers * (links.message + bytes * byte);
  const double of_scatter = 2 * links.latency + 2 * peers * (links.message + bytes / world * byte);
  return world > 1 && of_gather < of_scatter;
}

GatheredSlice::GatheredSlice(Communicator& comm, std::shared_ptr<CodedTools> tools, std::span<float> values,
                             CodecState state, std::uint64_t number, std::uint64_t step,
                             std::vector<TensorPiece> pieces)
    : Phased(comm),
      tools_(std::move(tools)),
      values_(values),
      state_(state),
      number_(number),
      step_(step),
      pieces_(std::move(pieces)) {}

std::span<std::byte> GatheredSlice::room_of(Rank rank) {
  return std::span(memory_).subspan(static_cast<std::size_t>(rank) * room_, room_);
}

bool GatheredSlice::begin() {
  room_ = tools_->codec->max_bytes(values_.size());
  memory_ = tools_->codes.take(static_cast<std::size_t>(world_) * room_);
  sum_ = tools_->floats.take(values_.size());
  bytes_.assign(static_cast<std::size_t>(world_), 0);
  each_peer([&](Rank peer) { works_.push_back(receive(room_of(peer), peer, tag(number_, 0))); });
  const CodecKey key{.seed = seed_of(number_, rank_, world_), .step = step_, .pieces = pieces_};
  std::size_t& own = bytes_[static_cast<std::size_t>(rank_)];
  own = tools_->codec->encode(values_, state_, room_of(rank_), key);
  each_peer([&](Rank peer) { send(room_of(rank_).first(own), peer, tag(number_, 0)); });
  wait_for_sends();
  return true;
}

bool GatheredSlice::advance() {
  std::size_t next = 0;
  each_peer([&](Rank peer) { bytes_[static_cast<std::size_t>(peer)] = works_[next++].received_bytes(); });
  works_.clear();
  if (std::ranges::find(bytes_, std::size_t{0}) == bytes_.end())
    add_up();
  else
    go_plain();
  return false;
}

// Its own code as well, so that all ranks add the same numbers in the same order.
void GatheredSlice::add_up() {
  for (Rank rank = 0; rank < world_; ++rank)
    tools_->codec->decode(room_of(rank).first(bytes_[static_cast<std::size_t>(rank)]), sum_,
                          rank == 0 ? Combine::replace : Combine::add);
  kernel::multiply(sum_.data(), 1 / static_cast<float>(world_), values_.data(), values_.size());
}

// Everybody has seen the same codes, so all ranks turn off here or none. The residual becomes what it was before:
// residual + values - decoded was left there, and the values go plain.
void GatheredSlice::go_plain() {
  plain_ = true;
  tools_->plain.fetch_add(1);
  if (const std::size_t own = bytes_[static_cast<std::size_t>(rank_)]; own > 0 && !state_.residual.empty()) {
    tools_->codec->decode(room_of(rank_).first(own), sum_, Combine::replace);
    kernel::add(state_.residual.data(), sum_.data(), state_.residual.data(), sum_.size());
    kernel::subtract(state_.residual.data(), values_.data(), state_.residual.data(), sum_.size());
  }
  go_on_with(plain_slice(comm_, values_, number_ | plain_twin));
}

void GatheredSlice::end() {
  tools_->codes.give_back(std::move(memory_));
  tools_->floats.give_back(std::move(sum_));
}

}  // namespace ranvier
