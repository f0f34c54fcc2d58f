#include "exchange/coded_slice.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mix.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

std::size_t border(std::size_t count, Rank rank, Rank world) {
  const std::size_t at = count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(world);
  return rank == world || count / static_cast<std::size_t>(world) < 4 * part_alignment
             ? at
             : at / part_alignment * part_alignment;
}

// Momentum would keep for long what has no code, which the values of this rank's own part may be: no codec sees them.
bool may_be_added(std::span<const float> values) {
  return kernel::largest_magnitude(values.data(), values.size()) <= largest_codable;
}

}  // namespace

std::uint64_t seed_of(std::uint64_t number, Rank rank, Rank world) {
  return mix(number * static_cast<std::uint64_t>(world) + static_cast<std::uint64_t>(rank));
}

CodedSlice::CodedSlice(Communicator& comm, std::shared_ptr<CodedTools> tools, std::span<float> values, CodecState state,
                       std::uint64_t number, std::uint64_t step, std::vector<TensorPiece> pieces)
    : Phased(comm),
      tools_(std::move(tools)),
      values_(values),
      state_(state),
      number_(number),
      step_(step),
      pieces_(std::move(pieces)) {}

CodecState CodedSlice::state_of(Rank rank) {
  const auto own = [&](std::span<float> whole) {
    return whole.empty() ? whole : whole.subspan(part(rank).begin, part(rank).size);
  };
  return {.residual = own(state_.residual), .velocity = own(state_.velocity)};
}

bool CodedSlice::begin() {
  if (world_ == 1) {
    stay_alone();
    return false;
  }
  lay_out();
  post_receives();
  scatter();
  return true;
}

// Nothing to send, so nothing is lost, and what codes for other ranks have lost before is paid. Momentum is still this
// exchange's. What has no code leaves the state as it was, as it does among several.
void CodedSlice::stay_alone() {
  if (state_.residual.empty() && state_.velocity.empty()) return;
  if (!may_be_added(values_)) return;
  if (!state_.velocity.empty()) {
    accumulate(state_.velocity, values_);
    std::ranges::copy(state_.velocity, values_.begin());
  }
  if (!state_.residual.empty()) {
    kernel::add(values_.data(), state_.residual.data(), values_.data(), values_.size());
    std::ranges::fill(state_.residual, 0.0F);
  }
}

void CodedSlice::lay_out() {
  parts_.resize(static_cast<std::size_t>(world_));
  sent_.resize(parts_.size());
  received_.resize(parts_.size());
  sums_.resize(parts_.size());
  std::size_t bytes = 0;
  for (Rank rank = 0; rank < world_; ++rank) {
    const std::size_t begin = border(values_.size(), rank, world_), end = border(values_.size(), rank + 1, world_);
    const std::size_t room = std::max(tools_->codec->max_bytes(end - begin), tools_->sums->max_bytes(end - begin));
    part(rank) = {.begin = begin, .size = end - begin, .code_room = room};
    bytes += 2 * room;
  }
  bytes += static_cast<std::size_t>(world_) * part(rank_).code_room;
  memory_ = tools_->codes.take(bytes);
  std::span<std::byte> left = memory_;
  const auto cut = [&](std::size_t size) {
    const auto first = left.first(size);
    left = left.subspan(size);
    return first;
  };
  for (Rank rank = 0; rank < world_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    sent_[at].room = cut(part(rank).code_room);
    sums_[at].room = cut(part(rank).code_room);
    received_[at].room = cut(part(rank_).code_room);
  }
  sum_ = tools_->floats.take(part(rank_).size);
}

// Of both phases, before anything is sent: what finds its receive posted is not copied.
void CodedSlice::post_receives() {
  each_peer([&](Rank peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (part(rank_).size > 0) works_.push_back(receive(received_[at].room, peer, Phase::scatter));
    if (part(peer).size > 0) later_.push_back(receive(sums_[at].room, peer, Phase::gather));
  });
}

void CodedSlice::scatter() {
  each_peer([&](Rank peer) {
    if (part(peer).size == 0) return;
    Code& code = sent_[static_cast<std::size_t>(peer)];
    const auto pieces = pieces_of(peer);
    const CodecKey key{
        .seed = seed_of(number_, rank_, world_) + static_cast<std::uint64_t>(peer), .step = step_, .pieces = pieces};
    code.bytes = tools_->codec->encode(values_of(peer), state_of(peer), code.room, key);
    send(code.view(), peer, Phase::scatter);
  });
}

// velocity <- momentum * velocity + gradients: what does not travel needs no other correction of momentum.
void CodedSlice::accumulate(std::span<float> velocity, std::span<const float> gradients) const {
  kernel::multiply(velocity.data(), static_cast<float>(tools_->codec->momentum()), velocity.data(), velocity.size());
  kernel::add(velocity.data(), gradients.data(), velocity.data(), velocity.size());
}

// The gradients of this rank's own part are added as they are: they need not travel. In the order of ranks, so that the
// sum does not depend on who came first.
void CodedSlice::sum_gradients() {
  const std::span<float> own = values_of(rank_);
  for (Rank rank = 0; rank < world_; ++rank) {
    const Combine combine = rank == 0 ? Combine::replace : Combine::add;
    if (rank != rank_) {
      tools_->codec->decode(received_[static_cast<std::size_t>(rank)].view(), sum_, combine);
      continue;
    }
    const float* addend = own.data();
    if (const auto velocity = state_of(rank_).velocity; !velocity.empty()) {
      accumulate(velocity, own);
      addend = velocity.data();
    }
    if (combine == Combine::replace)
      std::copy_n(addend, own.size(), sum_.data());
    else
      kernel::add(sum_.data(), addend, sum_.data(), own.size());
  }
}

bool CodedSlice::all_arrived() const {
  for (Rank rank = 0; rank < world_; ++rank)
    if (rank != rank_ && received_[static_cast<std::size_t>(rank)].bytes == 0) return false;
  return true;
}

// With a residual, which takes what a code cuts off, sums are coded as they are.
float CodedSlice::sum_scale() const { return state_.residual.empty() ? tools_->sums->sum_scale(world_) : 1; }

void CodedSlice::reduce() {
  if (part(rank_).size == 0) return;
  Code& code = sums_[static_cast<std::size_t>(rank_)];
  code.bytes = 0;
  if (all_arrived() && (state_.velocity.empty() || may_be_added(values_of(rank_)))) {
    sum_gradients();
    if (const float scale = sum_scale(); scale != 1) kernel::multiply(sum_.data(), scale, sum_.data(), sum_.size());
    const auto pieces = pieces_of(rank_);
    const CodecKey key{.seed = mix(~number_) + static_cast<std::uint64_t>(rank_), .step = step_, .pieces = pieces};
    code.bytes = tools_->sums->encode(sum_, {.residual = state_of(rank_).residual}, code.room, key);
  }
  each_peer([&](Rank peer) { send(code.view(), peer, Phase::gather); });
}

void CodedSlice::finish() {
  const float share = 1 / (static_cast<float>(world_) * sum_scale());
  for (Rank rank = 0; rank < world_; ++rank) {
    const std::span<float> values = values_of(rank);
    if (values.empty()) continue;
    tools_->sums->decode(sums_[static_cast<std::size_t>(rank)].view(), values, Combine::replace);
    kernel::multiply(values.data(), share, values.data(), values.size());
  }
}

// What was encoded does not arrive: residual + values - decoded is what the residual was before plus the values, which
// go plain. A velocity stays as it has become.
void CodedSlice::restore_residuals() {
  if (state_.residual.empty()) return;
  std::vector<float> decoded;
  const auto restore = [&](Rank rank, const Codec& codec, const Code& code, std::span<const float> coded) {
    if (code.bytes == 0 || coded.empty()) return;
    const std::span<float> residual = state_of(rank).residual;
    decoded.resize(coded.size());
    codec.decode(code.view(), decoded, Combine::replace);
    kernel::add(residual.data(), decoded.data(), residual.data(), coded.size());
    kernel::subtract(residual.data(), coded.data(), residual.data(), coded.size());
  };
  each_peer([&](Rank peer) { restore(peer, *tools_->codec, sent_[static_cast<std::size_t>(peer)], values_of(peer)); });
  restore(rank_, *tools_->sums, sums_[static_cast<std::size_t>(rank_)], sum_);
  // Of this rank's own part the sum had velocity, of which only the gradient goes plain.
  const CodecState own = state_of(rank_);
  if (own.velocity.empty() || sums_[static_cast<std::size_t>(rank_)].bytes == 0) return;
  kernel::add(own.residual.data(), own.velocity.data(), own.residual.data(), own.residual.size());
  kernel::subtract(own.residual.data(), values_of(rank_).data(), own.residual.data(), own.residual.size());
}

// The same way as the codes, so that buckets may go plain in any order: collectives would have to be started in the
// same order on all ranks.
void CodedSlice::plain_scatter() {
  restore_residuals();
  plain_ = true;
  tools_->plain.fetch_add(1);
  const std::size_t own = part(rank_).size * sizeof(float);
  memory_.resize(std::max(memory_.size(), static_cast<std::size_t>(world_) * own + values_.size_bytes()));
  std::size_t at = 0;
  const auto room = [&](std::size_t bytes) {
    at += bytes;
    return Bytes(memory_).subspan(at - bytes, bytes);
  };
  each_peer([&](Rank peer) {
    received_[static_cast<std::size_t>(peer)].room = room(own);
    sums_[static_cast<std::size_t>(peer)].room = room(part(peer).size * sizeof(float));
    if (own > 0) works_.push_back(receive(received_[static_cast<std::size_t>(peer)].room, peer, Phase::plain_scatter));
    if (part(peer).size > 0)
      later_.push_back(receive(sums_[static_cast<std::size_t>(peer)].room, peer, Phase::plain_gather));
  });
  each_peer([&](Rank peer) {
    if (part(peer).size > 0) send(std::as_bytes(values_of(peer)), peer, Phase::plain_scatter);
  });
}

void CodedSlice::plain_gather() {
  const std::span<float> own = values_of(rank_);
  std::vector<float> addend(own.size());
  for (Rank rank = 0; rank < world_; ++rank) {
    const float* values = own.data();
    if (rank != rank_ && !own.empty()) {
      std::memcpy(addend.data(), received_[static_cast<std::size_t>(rank)].room.data(), own.size_bytes());
      values = addend.data();
    }
    if (rank == 0)
      std::copy_n(values, own.size(), sum_.data());
    else
      kernel::add(sum_.data(), values, sum_.data(), own.size());
  }
  kernel::multiply(sum_.data(), 1 / static_cast<float>(world_), sum_.data(), own.size());
  each_peer([&](Rank peer) {
    if (!own.empty()) send(std::as_bytes(std::span(sum_)), peer, Phase::plain_gather);
  });
}

void CodedSlice::send(ConstBytes bytes, Rank to, Phase phase) {
  Phased::send(bytes, to, tag(number_, static_cast<std::uint64_t>(phase)));
}
Work CodedSlice::receive(Bytes room, Rank from, Phase phase) {
  return Phased::receive(room, from, tag(number_, static_cast<std::uint64_t>(phase)));
}

bool CodedSlice::advance() {
  // Peers in the order of each_peer, as the receives were posted.
  std::size_t next = 0;
  const auto take_sizes = [&](std::vector<Code>& codes, const auto& comes) {
    each_peer([&](Rank peer) {
      if (comes(peer)) codes[static_cast<std::size_t>(peer)].bytes = works_[next++].received_bytes();
    });
  };
  const auto wait_for_the_rest = [&] {
    works_ = std::exchange(later_, {});
    wait_for_sends();
  };
  switch (phase_) {
    case Phase::scatter:
      take_sizes(received_, [&](Rank) { return part(rank_).size > 0; });
      reduce();
      wait_for_the_rest();
      phase_ = Phase::gather;
      return true;
    case Phase::gather: {
      take_sizes(sums_, [&](Rank peer) { return part(peer).size > 0; });
      bool coded = true;
      for (Rank rank = 0; rank < world_; ++rank)
        coded = coded && (part(rank).size == 0 || sums_[static_cast<std::size_t>(rank)].bytes > 0);
      works_.clear();
      if (coded) {
        finish();
        return false;
      }
      plain_scatter();
      phase_ = Phase::plain_scatter;
      return true;
    }
    case Phase::plain_scatter:
      plain_gather();
      wait_for_the_rest();
      phase_ = Phase::plain_gather;
      return true;
    case Phase::plain_gather:
      each_peer([&](Rank peer) {
        const auto& room = sums_[static_cast<std::size_t>(peer)].room;
        if (!room.empty()) std::memcpy(values_of(peer).data(), room.data(), room.size());
      });
      std::copy(sum_.begin(), sum_.end(), values_of(rank_).begin());
      return false;
  }
  return false;
}

void CodedSlice::end() {
  tools_->codes.give_back(std::move(memory_));
  tools_->floats.give_back(std::move(sum_));
}

std::shared_ptr<Phased> plain_slice(Communicator& comm, std::span<float> values, std::uint64_t number) {
  auto tools = std::make_shared<CodedTools>();
  tools->codec = tools->sums = make_codec("fp32");
  return std::make_shared<CodedSlice>(comm, std::move(tools), values, CodecState{}, number, 0);
}

}  // namespace ranvier
