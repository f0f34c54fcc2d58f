#include "replica/gossip.h"

#include <array>
#include <utility>

#include "base/mix.h"
#include "base/parts.h"

namespace ranvier::replica {
namespace {

constexpr std::uint64_t push_tag = 0x70757368;  // "push": apart from what the program sends itself

}  // namespace

Gossip::Gossip(Communicator& comm, std::string_view compress) : comm_(comm), coding_(coding_of_pairs(compress)) {}

void Gossip::agree_on(std::span<const float> parameters) {
  if (!coding_) return;
  agreed_.assign(parameters.begin(), parameters.end());
  peers_.clear();
}

void Gossip::push(std::size_t hops, std::span<float> parameters) {
  const auto world = static_cast<std::size_t>(comm_.world());
  const auto own = static_cast<std::size_t>(comm_.rank());
  const auto to = static_cast<Rank>((own + hops) % world);
  const auto from = static_cast<Rank>((own + world - hops) % world);
  if (!coding_) return push_plainly(to, from, parameters);
  push_code(to, from, peers_.try_emplace(hops, agreed_).first->second, parameters);
}

void Gossip::push_plainly(Rank to, Rank from, std::span<float> parameters) {
  arrived_.resize(parameters.size());
  Work sending = comm_.start_send(parameters, to, push_tag);
  comm_.start_recv(arrived_, from, push_tag).wait();
  sending.wait();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = (parameters[i] + arrived_[i]) / 2;
}

void Gossip::push_code(Rank to, Rank from, CodedPair& pair, std::span<float> parameters) {
  const auto world = static_cast<std::uint64_t>(comm_.world());
  const CodecKey key{.seed = mix(mix(number_) * world + static_cast<std::uint64_t>(comm_.rank())), .step = number_};
  ++number_;
  received_.resize(coding_->most_bytes(parameters.size()));
  Work hearing = comm_.start_recv_at_most({received_.data(), received_.size(), DType::u8}, from, push_tag);
  pair.tell(*coding_, key, parameters, sent_);
  Work telling = comm_.start_send({sent_.data(), sent_.size(), DType::u8}, to, push_tag);
  hearing.wait();
  pair.hear(*coding_, ConstBytes(received_).first(hearing.received_bytes()));
  telling.wait();
  pair.meet(parameters);
}

std::size_t Gossip::state_bytes() const {
  return (agreed_.size() + peers_.size() * 2 * agreed_.size()) * sizeof(float);
}

void Gossip::save(std::vector<std::byte>& all) const {
  const std::array<std::uint64_t, 2> numbers{number_, peers_.size()};
  append_part(all, std::as_bytes(std::span(numbers)));
  append_part(all, std::as_bytes(std::span(agreed_)));
  for (const auto& [hops, pair] : peers_) {
    const std::array<std::uint64_t, 1> distance{hops};
    append_part(all, std::as_bytes(std::span(distance)));
    append_part(all, std::as_bytes(std::span(pair.told)));
    append_part(all, std::as_bytes(std::span(pair.heard)));
  }
}

void Gossip::restore(ConstBytes& all) {
  std::array<std::uint64_t, 2> numbers{};
  take_values(all, std::span<std::uint64_t>(numbers));
  number_ = numbers[0];
  take_values(all, std::span(agreed_));
  peers_.clear();
  for (std::uint64_t i = 0; i < numbers[1]; ++i) {
    std::array<std::uint64_t, 1> hops{};
    take_values(all, std::span<std::uint64_t>(hops));
    CodedPair& pair = peers_.try_emplace(hops[0], agreed_).first->second;
    take_values(all, std::span(pair.told));
    take_values(all, std::span(pair.heard));
  }
}

}  // namespace ranvier::replica
