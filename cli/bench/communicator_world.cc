#include "bench/communicator_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <tuple>
#include <vector>

#include "bench/peer.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::bench {
namespace {

constexpr std::size_t line_bytes = 256;
using LineBytes = std::array<std::uint8_t, line_bytes>;

// An empty line says goodbye.
void send_line(Communicator& communicator, std::string_view line) {
  LineBytes bytes{};
  std::copy_n(line.data(), std::min(line.size(), line_bytes - 1), bytes.data());
  communicator.broadcast(bytes, first_rank);
}

std::string receive_line(Communicator& communicator) {
  LineBytes bytes{};
  communicator.broadcast(bytes, first_rank);
  std::string line;
  for (const auto byte : bytes)
    if (byte != 0) line += static_cast<char>(byte);
  return line;
}

// What every rank says, on rank 0.
using Numbers = std::array<double, 14>;
std::vector<double> gather_numbers(Communicator& control, const Reply& reply) {
  const auto number = [](std::uint64_t count) { return static_cast<double>(count); };
  const Numbers mine{reply.seconds,
                     reply.cpu_seconds,
                     reply.error,
                     number(reply.wrong),
                     number(reply.losses.due),
                     number(reply.losses.missing),
                     number(reply.packets.sent),
                     number(reply.packets.lost),
                     number(reply.packets.refused),
                     number(reply.kernel.sent),
                     number(reply.kernel.lost),
                     number(reply.kernel.refused),
                     number(reply.network),
                     number(reply.fell_back ? 1 : 0)};
  std::vector<double> all(control.rank() == first_rank ? mine.size() * static_cast<std::size_t>(control.world()) : 0);
  control.gather(mine, all, first_rank);
  return all;
}

Reply reply_of(std::span<const double> numbers) {
  const auto count = [&](std::size_t at) { return static_cast<std::uint64_t>(numbers[at]); };
  return {.seconds = numbers[0],
          .wrong = count(3),
          .cpu_seconds = numbers[1],
          .losses = {.due = count(4), .missing = count(5)},
          .packets = {.sent = count(6), .lost = count(7), .refused = count(8)},
          .kernel = {.sent = count(9), .lost = count(10), .refused = count(11)},
          .network = count(12),
          .error = numbers[2],
          .fell_back = count(13) != 0};
}

class CommunicatorWorld final : public World {
 public:
  CommunicatorWorld(Communicator& control, Communicator& measured, Buffers buffers, std::size_t number)
      : control_(control),
        size_(measured.world()),
        number_(number),
        peer_(communicator_peer(measured, buffers)),
        measurer_(*peer_) {}

  std::string name() const override { return "ranvier"; }
  std::string description() const override { return peer_->description(); }
  Rank size() const override { return size_; }

  Outcome run(const Job& job) override {
    send_line(control_, fmt::format("{} {}", number_, to_line(job)));
    const auto numbers = gather_numbers(control_, measurer_.measure(job));
    Outcome outcome;
    constexpr std::size_t length = std::tuple_size_v<Numbers>;
    for (std::size_t i = 0; i < numbers.size(); i += length)
      outcome.add(reply_of(std::span(numbers).subspan(i, length)), job.iterations);
    return outcome;
  }

 private:
  Communicator& control_;
  const Rank size_;
  const std::size_t number_;
  std::unique_ptr<Peer> peer_;
  Measurer measurer_;
};

struct Served {
  Served(Communicator& communicator, Buffers buffers)
      : peer(communicator_peer(communicator, buffers)), measurer(*peer) {}
  std::unique_ptr<Peer> peer;
  Measurer measurer;
};

}  // namespace

std::unique_ptr<World> communicator_world(Communicator& control, Communicator& measured, Buffers buffers,
                                          std::size_t number) {
  return std::make_unique<CommunicatorWorld>(control, measured, buffers, number);
}

void serve_communicators(Communicator& control, std::span<Communicator* const> measured, Buffers buffers) {
  std::vector<std::unique_ptr<Served>> all;
  for (Communicator* communicator : measured) all.push_back(std::make_unique<Served>(*communicator, buffers));
  for (auto line = receive_line(control); !line.empty(); line = receive_line(control)) {
    const std::size_t space = std::min(line.find(' '), line.size() - 1);
    const auto number = parse_number<std::size_t>(std::string_view(line).substr(0, space));
    if (!number || *number >= all.size())
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank 0 asks for '{}', which no transport of this rank is; run the same ranvier on all "
                              "ranks",
                              line));
    gather_numbers(control, all[*number]->measurer.measure(job_from_line(std::string_view(line).substr(space + 1))));
  }
}

Dismissal::~Dismissal() {
  if (std::uncaught_exceptions() > 0) return;  // nobody would hear it
  try {
    send_line(control_, "");
  } catch (const Error&) {  // they have left already
  }
}

}  // namespace ranvier::bench
