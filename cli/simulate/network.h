// The network of `simulate` and `plan`: a topology whose links are all alike.
#pragma once

#include <string>

#include "flags.h"
#include "ranvier/topology.h"

namespace ranvier::simulation {

class NetworkOptions {
 public:
  void add_to(CLI::App&);
  // Once the command line has been read. Throws Error{usage}.
  void check();
  Topology topology(Rank world) const;
  const std::string& spec() const { return topology_; }
  double bytes_per_second() const { return speed_.bytes_per_second; }

 private:
  bool is_measured() const;

  std::string topology_ = "star";
  std::string rate_;
  double latency_us_ = 1;
  LinkSpeed speed_;
};

// The names of the algorithms that build all_reduce.
std::vector<std::string_view> all_reduce_algorithms();

}  // namespace ranvier::simulation
