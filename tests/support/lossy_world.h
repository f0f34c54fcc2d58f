// Worlds over "udp:loss=…" on real sockets of this host, their ranks threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "support/lossy_wire.h"

namespace ranvier::support {

inline std::vector<float> gradients(std::size_t count, Rank rank, unsigned step = 0) {
  std::mt19937 random(static_cast<unsigned>(rank) * 100 + step);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
  return values;
}

// As the ranks of one world. What one of them fails with fails the test.
inline void on_ranks(Rank world, const std::function<void(Communicator&)>& body,
                     const std::string& transport = "udp:loss=0.05") {
  forget_what_was_lost();
  const auto store = memory_store();
  std::vector<std::jthread> ranks;
  for (Rank rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const auto comm = Communicator::connect(
            *store, rank, world, {.transport = transport, .measure = false, .timeout = std::chrono::seconds(120)});
        body(*comm);
        comm->barrier();
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
}

// By rank, one after the other.
template <class Element>
std::vector<Element> everybodys(Communicator& comm, const std::vector<Element>& values) {
  std::vector<Element> all(values.size() * static_cast<std::size_t>(comm.world()));
  comm.all_gather(std::span<const Element>(values), std::span(all));
  return all;
}

// Whether all ranks have the same bits; the answer is the same on all of them.
template <class Element>
bool is_same_everywhere(Communicator& comm, const std::vector<Element>& values) {
  const std::vector<Element> all = everybodys(comm, values);
  for (std::size_t at = values.size(); at < all.size(); at += values.size())
    if (std::memcmp(all.data() + at, all.data(), values.size() * sizeof(Element)) != 0) return false;
  return true;
}

template <class Element>
void expect_same_everywhere(Communicator& comm, const std::vector<Element>& values) {
  EXPECT_TRUE(is_same_everywhere(comm, values)) << "rank " << comm.rank();
}

}  // namespace ranvier::support
