// Rings between two hosts over udp whose path loses packets: what a rank may send meanwhile decides what a loss costs.
// In virtual time, so that nothing but the programs and the connections counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/cost.h"
#include "ranvier/schedule.h"
#include "transport/udp_path.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::PathOptions;
using support::UdpPath;

constexpr std::size_t bytes = 4 << 20;
constexpr Lane lane = 0;

// A rank that runs its program again and again, as the executor does, without adding anything up.
class Rounds {
 public:
  explicit Rounds(Program program) : program_(std::move(program)), nothing_(bytes) {}

  void move(transport::UdpConnection& connection) {
    while (push(connection) || pull(connection)) {
    }
  }
  std::size_t operations() const { return operations_; }

 private:
  bool push(transport::UdpConnection& connection) {
    if (next_send_ == program_.sends.size() || program_.sends[next_send_].after > next_receive_) return false;
    const std::size_t rest = program_.sends[next_send_].bytes - sent_;
    const std::size_t accepted = connection.try_send(lane, {}, ConstBytes(nothing_).first(rest));
    sent_ += accepted;
    if (accepted == rest) {
      ++next_send_;
      sent_ = 0;
    }
    return accepted > 0;
  }

  bool pull(transport::UdpConnection& connection) {
    if (next_receive_ == program_.receives.size()) {
      if (next_send_ < program_.sends.size()) return false;
      next_send_ = next_receive_ = 0;
      ++operations_;
      return true;
    }
    const Instruction& step = program_.receives[next_receive_];
    if (step.after > next_send_) return false;
    const std::size_t taken = std::min(connection.view(lane).size(), step.bytes - received_);
    connection.release(lane, taken);
    received_ += taken;
    if (received_ < step.bytes) return taken > 0;
    ++next_receive_;
    received_ = 0;
    return true;
  }

  Program program_;
  std::vector<std::byte> nothing_;
  std::size_t next_send_ = 0, sent_ = 0, next_receive_ = 0, received_ = 0, operations_ = 0;
};

struct Cut {
  std::size_t slice_bytes, ahead_bytes;
};

// Bytes a second that a ring carries each way.
double rate_of(const PathOptions& options, const Cut& cut) {
  constexpr std::size_t operations = 8;
  const Schedule schedule = ring(Collective::all_reduce, 2);
  std::vector<Rounds> ranks;
  for (Rank rank = 0; rank < 2; ++rank)
    ranks.emplace_back(compile(schedule, rank, even_layout(schedule, rank, bytes / sizeof(float), sizeof(float)),
                               {.slice_bytes = cut.slice_bytes, .in_place = true, .ahead_bytes = cut.ahead_bytes}));
  UdpPath path(options);
  double began = 0;  // when both had ended the first
  const bool ended = path.run(
      [&] {
        for (std::size_t rank = 0; rank < 2; ++rank) ranks[rank].move(path.end(rank));
        const std::size_t done = std::min(ranks[0].operations(), ranks[1].operations());
        if (began == 0 && done > 0) began = path.seconds();
        return done > operations;
      },
      600);
  EXPECT_TRUE(ended);
  return static_cast<double>(bytes * operations) / (path.seconds() - began);
}

// A slice that has to come again, or comes from far away, stops a line that has nothing else to send.
TEST(UdpRing, InShortSlicesCarriesAsMuchAsInLongOnes) {
  constexpr std::size_t most = 512 << 10;
  for (const auto delay : {100us, 20'000us})
    for (const double loss : {0.0, 0.01}) {
      const PathOptions options{
          .bytes_per_second = 25e6, .queue_bytes = 1'250'000, .delay = delay, .loss = loss, .ring_bytes = 8 << 20};
      const double seconds_per_byte = 1 / options.bytes_per_second;
      const double latency = std::chrono::duration<double>(delay).count();
      const Cut cut{slice_for(seconds_per_byte, most), ahead_for(latency, seconds_per_byte, most)};
      EXPECT_EQ(cut.slice_bytes, 16U << 10);
      const std::string where = std::to_string(delay / 1us) + " us, loss " + std::to_string(loss);
      const double in_long_slices = rate_of(options, {most, 0});
      EXPECT_GT(rate_of(options, cut), 0.95 * in_long_slices) << where;
      if (delay > 1ms) EXPECT_LT(rate_of(options, {cut.slice_bytes, 0}), 0.3 * in_long_slices) << where;
    }
}

}  // namespace
}  // namespace ranvier
