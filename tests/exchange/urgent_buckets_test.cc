// A bucket's priority is that of what it travels by.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ranvier/exchange.h"
#include "support/cluster.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

TEST(UrgentBuckets, PassThoseThatWereStartedBefore) {
  support::ClusterOptions options;
  options.communicator.background_progress = false;  // all begins when the urgent one is waited for
  options.communicator.algorithm = "direct";
  for (const std::string spec : {"none", "bf16", "thc:8", "acpsgd:4+bf16", "delta+randk:0.5"}) {
    support::run_ranks(
        2,
        [&](Communicator& comm) {
          const auto exchange = make_exchange(spec, comm);
          // Dozens of slices each, and more of them than there are ordinary lanes.
          const std::size_t count = support::sanitized ? 400'000 : 1'000'000;
          std::vector<std::vector<float>> large(std::size_t{2} * ordinary_lanes, std::vector<float>(count, 1));
          std::vector<float> small(10, 1);
          std::vector<std::shared_ptr<Averaging>> before;
          for (auto& values : large) before.push_back(exchange->start(values));
          exchange->start({.values = small, .priority = 1})->wait();
          EXPECT_FALSE(before.front()->done()) << spec;
          for (const auto& each : before) each->wait();
        },
        options);
  }
}

}  // namespace
}  // namespace ranvier
