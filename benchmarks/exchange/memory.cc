// What codecs cost in memory: bytes that a rank holds for each parameter between steps, and the most within a step:
// residuals, momentum, factors, codes, sums and decoders' tables. The gradients themselves are not in it.
//
//   exchange_memory PARAMETERS SPEC …
//
// One bucket, a matrix of 64 columns and a vector of what is left, over 4 ranks, threads of this process, counted by
// operator new and divided by 4.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/transport.h"
#include "support/counted_memory.h"

namespace {

using namespace ranvier;

constexpr Rank world = 4;
constexpr int steps = 6;

struct Held {
  double between_steps, at_most;  // bytes for each parameter of a rank
};

void average(Communicator& comm, Exchange& exchange, std::vector<float>& bucket) {
  constexpr std::size_t columns = 64;
  const std::vector<Tensor> tensors{{.id = 1, .rows = bucket.size() / columns, .columns = columns},
                                    {.id = 2, .columns = bucket.size() % columns}};
  std::mt19937 random(static_cast<unsigned>(comm.rank()));
  std::normal_distribution<float> normal;
  for (int step = 0; step < steps; ++step) {
    for (float& value : bucket) value = normal(random);
    exchange.start({.values = bucket, .tensors = tensors})->wait();
  }
}

Held held_by(std::string_view spec, std::size_t parameters) {
  auto transports = loopback_world(world);
  std::vector<std::vector<float>> buckets(world, std::vector<float>(parameters));
  std::vector<std::unique_ptr<Communicator>> comms(world);
  const auto on_all = [&](const auto& body) {
    std::vector<std::jthread> ranks;
    for (Rank rank = 0; rank < world; ++rank)
      ranks.emplace_back([&body, rank] {
        try {
          body(static_cast<std::size_t>(rank));
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
          std::_Exit(1);
        }
      });
  };
  on_all([&](std::size_t rank) {
    comms[rank] = Communicator::over(std::move(transports[rank]));
    average(*comms[rank], *make_exchange("none", *comms[rank]), buckets[rank]);
  });

  const std::size_t before = support::held_bytes();
  support::restart_most_held();
  std::vector<std::unique_ptr<Exchange>> exchanges(world);
  std::size_t after = 0;
  on_all([&](std::size_t rank) {
    exchanges[rank] = make_exchange(spec, *comms[rank]);
    average(*comms[rank], *exchanges[rank], buckets[rank]);
    comms[rank]->barrier();
    if (rank == 0) after = support::held_bytes();
    comms[rank]->barrier();
  });
  const auto of_each = [&](std::size_t bytes) {
    return (static_cast<double>(bytes) - static_cast<double>(before)) / world / static_cast<double>(parameters);
  };
  return {.between_steps = of_each(after), .at_most = of_each(support::most_held_bytes())};
}

}  // namespace

int main(int count, char** words) {
  std::size_t parameters = 0;
  if (count < 3 || std::from_chars(words[1], words[1] + std::strlen(words[1]), parameters).ec != std::errc() ||
      parameters == 0) {
    fmt::print(stderr, "usage: {} PARAMETERS SPEC …\n", words[0]);
    return 2;
  }
  try {
    for (int i = 2; i < count; ++i) {
      const Held held = held_by(words[i], parameters);
      fmt::print("| `{}` | {:.1f} | {:.1f} |\n", words[i], held.between_steps, held.at_most);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
