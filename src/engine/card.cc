#include "engine/card.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <system_error>

#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

constexpr std::string_view greeting = "ranvier 16";  // of this format of card, and of messages
// Of a card that is a refusal and no more: any version reads it, and python/ranvier/_declining.py writes it, too.
constexpr std::string_view refusing = "ranvier refuses";

constexpr std::array fields = {&Card::purpose,  &Card::transport,   &Card::epoch,   &Card::members, &Card::algorithm,
                               &Card::tuning,   &Card::table,       &Card::measure, &Card::learn,   &Card::topology,
                               &Card::security, &Card::fingerprint, &Card::silence, &Card::host,    &Card::control,
                               &Card::inside,   &Card::between};

std::string framed(std::string_view field) { return fmt::format("{}:{}", field.size(), field); }

// The next field, which is taken off `text`. Throws Error{mismatch} where there is none.
std::string_view take(std::string_view& text, Rank rank, const RankNames& names) {
  std::size_t length = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), length);
  const auto digits = static_cast<std::size_t>(rest - text.data());
  if (problem != std::errc{} || digits == text.size() || *rest != ':' || text.size() - digits - 1 < length)
    throw Error(ErrorKind::mismatch,
                fmt::format("what {} left in the store is not ranvier's; is another program using it?", names(rank)),
                rank);
  const std::string_view field = text.substr(digits + 1, length);
  text.remove_prefix(digits + 1 + length);
  return field;
}

}  // namespace

std::string Card::text() const {
  if (!refusal.empty()) return framed(refusing) + framed(refusal);
  std::string all = framed(greeting);
  for (const auto field : fields) all += framed(this->*field);
  return all;
}

Card Card::parse(std::string_view text, Rank rank, const RankNames& names) {
  // Before the others are looked for: another version may have another number of them.
  const std::string_view version = take(text, rank, names);
  if (version == refusing) return {.refusal = std::string(take(text, rank, names))};
  if (version != greeting)
    throw Error(ErrorKind::mismatch,
                fmt::format("{} runs another version of ranvier ('{:.20}', this is '{}'); install the same everywhere",
                            names(rank), version, greeting),
                rank);
  Card card;
  for (const auto field : fields) card.*field = take(text, rank, names);
  return card;
}

}  // namespace ranvier::engine
