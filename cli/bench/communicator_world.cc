#include "bench/communicator_world.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <vector>

#include "bench/peer.h"
#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

constexpr std::size_t line_bytes = 256;
using LineBytes = std::array<std::uint8_t, line_bytes>;

// An empty line says goodbye.
void send_line(Communicator& communicator, std::string_view line) {
  LineBytes bytes{};
  std::copy_n(line.data(), std::min(line.size(), line_bytes - 1), bytes.data());
  communicator.broadcast(bytes, root);
}

std::string receive_line(Communicator& communicator) {
  LineBytes bytes{};
  communicator.broadcast(bytes, root);
  std::string line;
  for (const auto byte : bytes)
    if (byte != 0) line += static_cast<char>(byte);
  return line;
}

// Seconds, wrong elements and losses of every rank, on rank 0.
using Numbers = std::array<double, 4>;
std::vector<double> gather_numbers(Communicator& communicator, const Reply& reply) {
  const Numbers mine{reply.seconds, static_cast<double>(reply.wrong), static_cast<double>(reply.losses.due),
                     static_cast<double>(reply.losses.missing)};
  std::vector<double> all(communicator.rank() == root ? mine.size() * static_cast<std::size_t>(communicator.world())
                                                      : 0);
  communicator.gather(mine, all, root);
  return all;
}

class CommunicatorWorld final : public World {
 public:
  CommunicatorWorld(Communicator& communicator, Buffers buffers)
      : communicator_(communicator), peer_(communicator_peer(communicator, buffers)), measurer_(*peer_) {}
  ~CommunicatorWorld() override {
    if (std::uncaught_exceptions() > 0) return;  // nobody would hear it
    try {
      send_line(communicator_, "");
    } catch (const Error&) {  // they have left already
    }
  }
  CommunicatorWorld(const CommunicatorWorld&) = delete;
  CommunicatorWorld& operator=(const CommunicatorWorld&) = delete;

  std::string name() const override { return "ranvier"; }
  std::string description() const override { return peer_->description(); }
  Rank size() const override { return communicator_.world(); }

  Outcome run(const Job& job) override {
    send_line(communicator_, to_line(job));
    const Reply reply = measurer_.measure(job);
    const auto numbers = gather_numbers(communicator_, reply);
    Outcome outcome;
    for (std::size_t i = 0; i < numbers.size(); i += std::tuple_size_v<Numbers>) {
      outcome.seconds = std::max(outcome.seconds, numbers[i] / static_cast<double>(job.iterations));
      outcome.wrong += static_cast<std::uint64_t>(numbers[i + 1]);
      outcome.losses.due += static_cast<std::uint64_t>(numbers[i + 2]);
      outcome.losses.missing += static_cast<std::uint64_t>(numbers[i + 3]);
    }
    return outcome;
  }

 private:
  Communicator& communicator_;
  std::unique_ptr<Peer> peer_;
  Measurer measurer_;
};

}  // namespace

std::unique_ptr<World> communicator_world(Communicator& communicator, Buffers buffers) {
  return std::make_unique<CommunicatorWorld>(communicator, buffers);
}

void serve_communicator(Communicator& communicator, Buffers buffers) {
  const auto peer = communicator_peer(communicator, buffers);
  Measurer measurer(*peer);
  for (auto line = receive_line(communicator); !line.empty(); line = receive_line(communicator))
    gather_numbers(communicator, measurer.measure(job_from_line(line)));
}

}  // namespace ranvier::bench
