// libFuzzer target: averages of two ranks, of which one's bytes are changed on their way, behind all that authenticates
// them: what a rank would send that runs wild, but for a little of it. The first byte chooses the spec; then come
// changes, each a place in all that the rank sends (two bytes) and what is done to the byte there. Untouched, both
// ranks end with the same bits; else the averages are others, or an Error says whose bytes make no sense.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/transport.h"
#include "tests/support/transport_over.h"

namespace {

using namespace ranvier;
using namespace std::chrono_literals;

constexpr std::array<std::string_view, 18> specs{
    "none",       "bf16",   "int8",     "hadamard:32+int4", "topk:0.1+int8+rans", "int4:by=all_gather", "delta+int8",
    "powersgd:2", "acpsgd", "thc:8",    "switchml",         "demo:4,chunk=8",     "randk:0.2",          "dgc:0.1",
    "eden:2",     "sign",   "lossless", "qsgd:7+huffman"};
constexpr std::size_t rows = 30, columns = 20;
constexpr int steps = 2;

void require(bool held, const char* said) {
  if (held) return;
  std::fputs(said, stderr);
  std::abort();
}

struct Change {
  std::size_t place;
  std::byte by;
};

class Meddling final : public support::TransportOver {
 public:
  Meddling(std::unique_ptr<Transport> inner, std::vector<Change> changes)
      : TransportOver(std::move(inner)), changes_(std::move(changes)) {}

  void begin() { has_begun_ = true; }
  bool has_touched() const { return has_touched_; }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    if (!has_begun_) return TransportOver::try_send(to, lane, head, body);
    std::vector<std::byte> all(head.begin(), head.end());
    all.insert(all.end(), body.begin(), body.end());
    const std::size_t before = sent_;
    for (const Change& change : changes_)
      if (change.place >= before && change.place - before < all.size()) all[change.place - before] ^= change.by;
    const std::size_t taken =
        TransportOver::try_send(to, lane, ConstBytes(all).first(head.size()), ConstBytes(all).subspan(head.size()));
    sent_ += taken;
    for (const Change& change : changes_)
      has_touched_ = has_touched_ || (change.place >= before && change.place < sent_ && change.by != std::byte{0});
    return taken;
  }

 private:
  const std::vector<Change> changes_;
  std::atomic<bool> has_begun_ = false, has_touched_ = false;
  std::size_t sent_ = 0;
};

std::vector<Change> changes_of(std::span<const std::uint8_t> data) {
  std::vector<Change> changes;
  for (; data.size() >= 3; data = data.subspan(3))
    changes.push_back({static_cast<std::size_t>(data[0] << 8 | data[1]), static_cast<std::byte>(data[2])});
  return changes;
}

// What a rank ends with; none where it was refused.
std::optional<std::vector<float>> average(Communicator& comm, std::string_view spec,
                                          const std::function<void()>& made) {
  std::vector<float> values(rows * columns);
  const std::array<Tensor, 1> tensors{Tensor{.id = 1, .rows = rows, .columns = columns}};
  const auto exchange = make_exchange(spec, comm);
  made();
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>((i + 1) * static_cast<std::size_t>(comm.rank() + step + 1)));
    exchange->start({.values = values, .tensors = tensors})->wait();
  }
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view spec = specs[data[0] % specs.size()];
  auto transports = loopback_world(2);
  auto made = std::make_unique<Meddling>(std::move(transports[1]), changes_of({data + 1, size - 1}));
  Meddling& wire = *made;
  transports[1] = std::move(made);
  std::array<std::unique_ptr<Communicator>, 2> comms;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    comms[rank] = Communicator::over(std::move(transports[rank]), {.timeout = 10s});
  // Who has ended, and the other one, who may wait for what never comes: over this transport nobody else tells him.
  const auto rank_ends_with = [&](std::size_t rank) -> std::optional<std::vector<float>> {
    try {
      return average(*comms[rank], spec, [&] {
        if (rank == 1) wire.begin();
      });
    } catch (const Error& error) {
      require(error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::aborted, error.what());
      comms[1 - rank]->abort("the other one was refused");
      return std::nullopt;
    }
  };
  auto other = std::async(std::launch::async, rank_ends_with, 1);
  auto one = std::async(std::launch::async, rank_ends_with, 0);
  for (int looks = 0;
       one.wait_for(0ms) != std::future_status::ready || other.wait_for(0ms) != std::future_status::ready; ++looks) {
    if (looks == 300 && wire.has_touched())
      for (const auto& comm : comms) comm->abort("it waits in vain");
    std::this_thread::sleep_for(looks < 300 ? 100us : 1ms);
  }
  const auto mine = one.get(), theirs = other.get();
  if (wire.has_touched()) return 0;
  require(mine && theirs, "untouched, and refused");
  require(std::memcmp(mine->data(), theirs->data(), mine->size() * sizeof(float)) == 0, "other bits");
  return 0;
}
