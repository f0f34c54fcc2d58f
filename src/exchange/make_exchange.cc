#include <fmt/format.h>

#include <array>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/text.h"

namespace ranvier {
namespace {

constexpr std::string_view plain = "none";

// Null: no codec.
std::unique_ptr<Codec> codec_of(std::string_view spec) {
  if (spec == plain) return nullptr;
  try {
    return make_codec(spec);
  } catch (const Error& unknown) {
    const bool meant_plain = !nearest(spec, std::array{plain}).empty();
    throw Error(ErrorKind::usage, fmt::format("{}; '{}'{} sends values as they are", unknown.what(), plain,
                                              meant_plain ? " (did you mean that?)" : ""));
  }
}

// FNV-1a: codes made by one codec and read by another would be refused at best.
void demand_same_spec(std::string_view spec, Communicator& comm) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : spec) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  const std::array<std::int64_t, 1> own{static_cast<std::int64_t>(hash)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world()));
  comm.all_gather(own, all);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != own[0])
      throw Error(
          ErrorKind::mismatch,
          fmt::format("rank {} compresses with another codec than rank {}, which has '{}'; give the same spec to "
                      "every rank",
                      rank, comm.rank(), spec),
          static_cast<Rank>(rank));
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(std::string_view spec, Communicator& comm) {
  auto codec = codec_of(spec);
  demand_same_spec(spec, comm);
  if (!codec) return dense_exchange(comm);
  return codec->summable_as() ? summable_exchange(comm, std::move(codec)) : coded_exchange(comm, std::move(codec));
}

void check_exchange(std::string_view spec) { codec_of(spec); }

}  // namespace ranvier
