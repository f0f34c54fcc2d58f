// The network of `simulate` and `plan`: a topology whose links are all alike.
#pragma once

#include <optional>
#include <string>

#include "flags.h"
#include "ranvier/measured_network.h"
#include "ranvier/simulate.h"
#include "ranvier/topology.h"

namespace ranvier::simulation {

class NetworkOptions {
 public:
  void add_to(CLI::App&);
  // Once the command line has been read. Throws Error{usage}.
  void check();
  Topology topology(Rank world) const;
  const std::string& spec() const { return topology_; }
  // Of a link; of a measured network the median.
  double bytes_per_second() const { return speed_.bytes_per_second; }
  // What a measured network says of itself; nothing of others.
  std::optional<std::uint64_t> measured_ranks() const;
  // Slices and buffers as the transport has them over which the network was measured; else the simulator's own.
  SimulateOptions transfers() const;
  std::string measured_transport() const { return measured_ ? measured_->transport : ""; }

 private:
  std::string topology_ = "star";
  std::string rate_;
  double latency_us_ = 1;
  LinkSpeed speed_;
  std::optional<MeasuredNetwork> measured_;
};

// The names of the algorithms that build all_reduce.
std::vector<std::string_view> all_reduce_algorithms();

}  // namespace ranvier::simulation
