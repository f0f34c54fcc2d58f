#include "replica/gossip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/mix.h"
#include "base/parts.h"
#include "ranvier/error.h"

namespace ranvier::replica {
namespace {

constexpr std::uint64_t push_tag = 0x70757368;  // "push": apart from what the program sends itself

// By what share one code brings `values` nearer, 1 - |x - code of x|^2 / |x|^2.
double nearer_by(const CodedMessages& coding, std::span<const float> values) {
  std::vector<float> told(values.size(), 0);
  std::vector<std::byte> message(coding.most_bytes(values.size()));
  coding.write_change(values, told, {}, message);
  double left = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    left += (double{values[i]} - told[i]) * (double{values[i]} - told[i]);
    all += double{values[i]} * values[i];
  }
  return 1 - left / all;
}

// Who is told little at once follows what others were long ago, and then away from them: CHOCO-SGD steps by ever
// smaller parts of the difference, and replicas hardly come together. Consensus alone, with 16 ranks, still fails at
// 0.64 (sign) and not at 0.88 (eden:2).
constexpr double enough = 0.85;

void demand_enough(const CodedMessages& coding, std::string_view spec) {
  std::mt19937 random(1);
  // The worst for codes that send the largest, and for those that take one scale.
  std::vector<float> flat(4096), normal(flat.size(), 0);
  for (std::size_t i = 0; i < flat.size(); ++i) {
    flat[i] = random() % 2 == 0 ? 1.0F : -1.0F;
    for (int n = 0; n < 12; ++n) normal[i] += static_cast<float>(random()) / 4294967296.0F - 0.5F;
  }
  if (const double nearer = std::min(nearer_by(coding, flat), nearer_by(coding, normal)); nearer < enough)
    throw Error(
        ErrorKind::usage,
        fmt::format("with gossip each message has to bring its reader nearer by {:.0f} % of the difference, and "
                    "'{}' may do so by {:.0f} %; take int4, int8, eden:2 or another codec of every value",
                    100 * enough, spec, 100 * nearer));
}

std::unique_ptr<const CodedMessages> coding_by(std::string_view compress) {
  if (compress == "none") return nullptr;
  auto coding = std::make_unique<const CodedMessages>(codec_of_messages(compress));
  demand_enough(*coding, compress);
  return coding;
}

}  // namespace

void check_gossip(std::string_view compress) { coding_by(compress); }

Gossip::Gossip(Communicator& comm, std::string_view compress) : comm_(comm), coding_(coding_by(compress)) {}

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
  push_code(to, from, peers_.try_emplace(hops, Peers{agreed_, agreed_}).first->second, parameters);
}

void Gossip::push_plainly(Rank to, Rank from, std::span<float> parameters) {
  arrived_.resize(parameters.size());
  Work sending = comm_.start_send(parameters, to, push_tag);
  comm_.start_recv(arrived_, from, push_tag).wait();
  sending.wait();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] = (parameters[i] + arrived_[i]) / 2;
}

void Gossip::push_code(Rank to, Rank from, Peers& peers, std::span<float> parameters) {
  const auto world = static_cast<std::uint64_t>(comm_.world());
  const CodecKey key{.seed = mix(mix(number_) * world + static_cast<std::uint64_t>(comm_.rank())), .step = number_};
  ++number_;
  received_.resize(coding_->most_bytes(parameters.size()));
  Work hearing = comm_.start_recv_at_most({received_.data(), received_.size(), DType::u8}, from, push_tag);
  sent_.resize(coding_->most_bytes(parameters.size()));
  sent_.resize(coding_->write_change(parameters, peers.told, key, sent_));
  Work telling = comm_.start_send({sent_.data(), sent_.size(), DType::u8}, to, push_tag);
  hearing.wait();
  coding_->read_change(ConstBytes(received_).first(hearing.received_bytes()), peers.heard);
  telling.wait();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] += (peers.heard[i] - peers.told[i]) / 2;
}

std::size_t Gossip::state_bytes() const {
  return (agreed_.size() + peers_.size() * 2 * agreed_.size()) * sizeof(float);
}

void Gossip::save(std::vector<std::byte>& all) const {
  const std::array<std::uint64_t, 2> numbers{number_, peers_.size()};
  append_part(all, std::as_bytes(std::span(numbers)));
  append_part(all, std::as_bytes(std::span(agreed_)));
  for (const auto& [hops, peers] : peers_) {
    const std::array<std::uint64_t, 1> distance{hops};
    append_part(all, std::as_bytes(std::span(distance)));
    append_part(all, std::as_bytes(std::span(peers.told)));
    append_part(all, std::as_bytes(std::span(peers.heard)));
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
    Peers& peers = peers_[hops[0]];
    peers.told.resize(agreed_.size());
    peers.heard.resize(agreed_.size());
    take_values(all, std::span(peers.told));
    take_values(all, std::span(peers.heard));
  }
}

}  // namespace ranvier::replica
