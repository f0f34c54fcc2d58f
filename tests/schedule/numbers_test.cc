// Runs compiled programs on real numbers, without the verifier's code: what the verifier calls proven is so.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

// All ranks of a world in one thread, on links that hold everything.
class World {
 public:
  World(const Schedule& schedule, std::size_t count, bool in_place) : schedule_(schedule) {
    for (Rank rank = 0; rank < schedule.world; ++rank) {
      const Layout layout = even_layout(schedule, rank, count, sizeof(float));
      const Program program =
          compile(schedule, rank, layout, {.element_bytes = sizeof(float), .slice_bytes = 20, .in_place = in_place});
      const auto end = [](const std::vector<Extent>& extents) {
        return extents.empty() ? 0 : extents.back().offset + extents.back().bytes;
      };
      Node node{.program = program};
      if (in_place) {
        const InPlace offset = in_place_offset(schedule, rank, layout);
        node.at = {offset.input_in_output, offset.output_in_input, 0};
      } else {
        node.at = {0, end(layout.input), 0};
      }
      node.output_bytes = end(layout.output);
      node.at[2] = std::max(node.at[0] + end(layout.input), node.at[1] + end(layout.output));
      node.memory.resize((node.at[2] + program.scratch_bytes) / sizeof(float), unwritten);
      for (std::size_t i = 0; i < end(layout.input) / sizeof(float); ++i)
        node.memory[node.at[0] / sizeof(float) + i] = value(rank, i);
      nodes_.push_back(std::move(node));
    }
  }

  static constexpr float unwritten = -0x1p100f;

  // Sums of these round differently in every order.
  static float value(Rank rank, std::size_t i) {
    return static_cast<float>(static_cast<double>((rank + 1) * 7919 + static_cast<Rank>(i) * 104729 % 1000) / 3.0);
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < schedule_.world; ++rank) {
        if (push(rank)) moved = true;
        if (pull(rank)) moved = true;
      }
    }
    for (const Node& node : nodes_) {
      ASSERT_EQ(node.sends, node.program.sends.size()) << name(schedule_);
      ASSERT_EQ(node.receives, node.program.receives.size()) << name(schedule_);
    }
  }

  std::vector<float> output(Rank rank) const {
    const Node& node = nodes_[static_cast<std::size_t>(rank)];
    const auto begin = node.memory.begin() + static_cast<std::ptrdiff_t>(node.at[1] / sizeof(float));
    return {begin, begin + static_cast<std::ptrdiff_t>(node.output_bytes / sizeof(float))};
  }

 private:
  struct Node {
    Program program;
    std::array<std::size_t, 3> at{};  // of input, output, scratch in memory, in bytes
    std::size_t output_bytes = 0;
    std::vector<float> memory = {};
    std::size_t sends = 0;
    std::size_t receives = 0;
  };

  static float* find(Node& node, Buffer buffer, std::size_t offset) {
    return node.memory.data() + (node.at[static_cast<std::size_t>(buffer)] + offset) / sizeof(float);
  }

  bool push(Rank rank) {
    Node& node = nodes_[static_cast<std::size_t>(rank)];
    if (node.sends == node.program.sends.size()) return false;
    const Instruction& send = node.program.sends[node.sends];
    if (send.after > node.receives) return false;
    const float* from = find(node, send.from_buffer, send.from);
    links_[{rank, send.peer}].emplace_back(from, from + send.bytes / sizeof(float));
    ++node.sends;
    return true;
  }

  bool pull(Rank rank) {
    Node& node = nodes_[static_cast<std::size_t>(rank)];
    if (node.receives == node.program.receives.size()) return false;
    const Instruction& step = node.program.receives[node.receives];
    if (step.after > node.sends) return false;
    const std::size_t count = step.bytes / sizeof(float);
    float* to = find(node, step.to_buffer, step.to);
    const float* from = find(node, step.from_buffer, step.from);
    std::vector<float> message;
    if (step.peer >= 0) {
      auto& link = links_[{step.peer, rank}];
      if (link.empty()) return false;
      message = link.front();
      link.pop_front();
    }
    for (std::size_t i = 0; i < count; ++i) {
      float result = step.action == Action::recv ? message[i] : from[i];
      if (step.action == Action::recv_reduce) result += message[i];
      if (step.action == Action::reduce) result += to[i];
      to[i] = step.completes ? result / static_cast<float>(schedule_.world) : result;
    }
    ++node.receives;
    return true;
  }

  const Schedule& schedule_;
  std::vector<Node> nodes_;
  std::map<std::pair<Rank, Rank>, std::deque<std::vector<float>>> links_;
};

class Numbers : public testing::TestWithParam<Rank> {};

INSTANTIATE_TEST_SUITE_P(Worlds, Numbers, testing::Values(1, 2, 3, 4, 5, 7, 8, 12, 13, 16));

constexpr std::size_t count = 37;

TEST_P(Numbers, OfAnAllReduceAreTheAverageAndTheSameBitsEverywhere) {
  for_each_shape(GetParam(), 0, [](const Schedule& schedule) {
    if (schedule.collective != Collective::all_reduce) return;
    for (const bool in_place : places(schedule)) {
      World world(schedule, count, in_place);
      world.run();
      for (Rank rank = 0; rank < schedule.world; ++rank) {
        const std::vector<float> output = world.output(rank);
        ASSERT_EQ(output.size(), count);
        EXPECT_EQ(std::memcmp(output.data(), world.output(0).data(), count * sizeof(float)), 0) << name(schedule);
        for (std::size_t i = 0; i < count; ++i) {
          double sum = 0;
          for (Rank each = 0; each < schedule.world; ++each) sum += static_cast<double>(World::value(each, i));
          EXPECT_NEAR(static_cast<double>(output[i]), sum / schedule.world, 1e-2) << name(schedule);
        }
      }
    }
  });
}

TEST_P(Numbers, OfTheOtherCollectivesAreWhatTheyAreDefinedToBe) {
  const Rank root = GetParam() / 2;
  for_each_shape(GetParam(), root, [&](const Schedule& schedule) {
    if (schedule.collective == Collective::all_reduce) return;
    for (const bool in_place : places(schedule)) {
      World world(schedule, count, in_place);
      world.run();
      for (Rank rank = 0; rank < schedule.world; ++rank) {
        const std::vector<float> output = world.output(rank);
        for (std::size_t i = 0; i < output.size(); ++i) {
          const auto part = static_cast<Rank>(i / count);
          const std::size_t own = static_cast<std::size_t>(rank) * count + i % count;
          double expected = 0;
          switch (schedule.collective) {
            case Collective::reduce:
            case Collective::reduce_scatter:
              for (Rank each = 0; each < schedule.world; ++each)
                expected +=
                    static_cast<double>(World::value(each, schedule.collective == Collective::reduce ? i : own));
              expected /= schedule.world;
              break;
            case Collective::broadcast:
              expected = static_cast<double>(World::value(root, i));
              break;
            case Collective::scatter:
              expected = static_cast<double>(World::value(root, own));
              break;
            case Collective::all_to_all:
              expected = static_cast<double>(World::value(part, own));
              break;
            case Collective::neighbor_exchange: {
              const auto direction = static_cast<std::uint32_t>(part);
              const Rank beside = neighbor(schedule.grid, rank, direction);
              const std::size_t sent = opposite(direction) * count + i % count;
              expected = beside == no_neighbor ? static_cast<double>(World::unwritten)
                                               : static_cast<double>(World::value(beside, sent));
              break;
            }
            default:
              expected = static_cast<double>(World::value(part, i % count));
          }
          ASSERT_NEAR(static_cast<double>(output[i]), expected, 1e-2)
              << name(schedule) << ", rank " << rank << ", element " << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace ranvier
