#include "replica/coded_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernel/vectors.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"

namespace ranvier::replica {

std::unique_ptr<const Codec> codec_of_messages(std::string_view spec, std::string_view with, std::string_view such) {
  ExchangePlan plan = plan_exchange(spec);
  if (!plan.codes_messages())
    throw Error(
        ErrorKind::usage,
        fmt::format(
            "'{}' works on what all ranks average together in every step, and with {} each sends its own; take {}",
            spec, with, such));
  return std::move(plan.codec);
}

std::size_t CodedMessages::most_bytes(std::size_t count) const {
  return sizeof(Head) + std::max(codec_->max_bytes(count), count * sizeof(float));
}

std::size_t CodedMessages::write(std::span<const float> values, const CodecState& state, const CodecKey& key,
                                 Bytes message) const {
  if (values.empty()) return 0;
  const std::size_t length = codec_->encode(values, state, message.subspan(sizeof(Head)), key);
  return length > 0 ? finish({.form = Form::coded}, length, message) : write_plainly(values, message);
}

std::size_t CodedMessages::write_change(std::span<const float> values, std::span<float> held, const CodecKey& key,
                                        Bytes message) const {
  if (values.empty()) return 0;
  std::vector<float> change(values.size()), decoded(values.size());
  kernel::subtract(values.data(), held.data(), change.data(), change.size());
  const Bytes code = message.subspan(sizeof(Head));
  const std::size_t length = codec_->encode(change, {}, code, key);
  if (length == 0) {
    std::ranges::copy(values, held.begin());
    return write_plainly(values, message);
  }
  codec_->decode(code.first(length), decoded);
  // What is nearest to the change: with it every code brings `held` nearer, also one that is right only in the mean.
  const double squares = kernel::sum_of_squares(decoded.data(), decoded.size());
  const double scale = squares > 0 ? kernel::dot(change.data(), decoded.data(), change.size()) / squares : 1;
  const Head head{.form = Form::coded, .scale = static_cast<float>(scale)};
  add(head.scale, decoded, held);
  return finish(head, length, message);
}

void CodedMessages::read(ConstBytes message, std::span<float> values) const {
  if (begin(message, values)) codec_->decode(message, values);
}

void CodedMessages::read_change(ConstBytes message, std::span<float> held) const {
  const auto head = begin(message, held);
  if (!head) return;
  std::vector<float> decoded(held.size());
  codec_->decode(message, decoded);
  add(head->scale, decoded, held);
}

// Rounded twice, so that both ends come to the same bits on whatever machines.
void CodedMessages::add(float scale, std::span<float> decoded, std::span<float> held) {
  kernel::multiply(decoded.data(), scale, decoded.data(), decoded.size());
  kernel::add(held.data(), decoded.data(), held.data(), held.size());
}

std::size_t CodedMessages::finish(const Head& head, std::size_t length, Bytes message) {
  std::memcpy(message.data(), &head, sizeof head);
  return sizeof head + length;
}

std::size_t CodedMessages::write_plainly(std::span<const float> values, Bytes message) const {
  ++plain_;
  std::memcpy(message.data() + sizeof(Head), values.data(), values.size_bytes());
  return finish({.form = Form::plain}, values.size_bytes(), message);
}

std::optional<CodedMessages::Head> CodedMessages::begin(ConstBytes& message, std::span<float> values) {
  if (values.empty() && message.empty()) return std::nullopt;
  Head head;
  if (message.size() < sizeof head) throw Error(ErrorKind::mismatch, "a coded message is cut short");
  std::memcpy(&head, message.data(), sizeof head);
  message = message.subspan(sizeof head);
  if (head.form == Form::coded) return head;
  if (head.form != Form::plain || message.size() != values.size_bytes())
    throw Error(ErrorKind::mismatch,
                fmt::format("a coded message has {} bytes for {} values", message.size(), values.size()));
  std::memcpy(values.data(), message.data(), message.size());
  return std::nullopt;
}

}  // namespace ranvier::replica
