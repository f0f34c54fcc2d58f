// The network of `simulate` and `plan`: a topology whose links are all alike, or measured ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags.h"
#include "ranvier/measured_network.h"
#include "ranvier/simulate.h"
#include "ranvier/topology.h"

namespace ranvier::simulation {

class NetworkOptions {
 public:
  NetworkOptions() = default;
  // A topology, or a file of `ranvier probe`, whose links say themselves how fast they are. Throws as check() does.
  NetworkOptions(const std::string& spec_or_file, LinkSpeed speed);

  // `several`: --topology may be repeated, each of them measured over a transport of its own.
  void add_to(CLI::App&, bool several = false);
  // Once the command line has been read. Throws Error{usage}.
  void check();
  std::size_t count() const { return specs_.size(); }
  Topology topology(Rank world, std::size_t number = 0) const;
  const std::string& spec(std::size_t number = 0) const { return specs_[number]; }
  std::vector<cli::NamedFile> files() const;  // which are read
  // Of a link; where dimensions differ of the first, of a measured network the median.
  LinkSpeed speed() const { return speeds_.front(); }
  // Of each dimension, or one of all.
  const std::vector<LinkSpeed>& speeds() const { return speeds_; }
  bool is_measured() const { return !measured_.empty(); }
  // What a measured network says of itself; nothing of others.
  std::optional<std::uint64_t> measured_ranks() const;
  // Slices and buffers as the transport has them over which the network was measured; else the simulator's own.
  SimulateOptions transfers(std::size_t number = 0) const;
  std::string measured_transport(std::size_t number = 0) const {
    return measured_.empty() ? "" : measured_[number].transport;
  }
  // The link that loses most; null where none loses anything that was counted.
  const MeasuredLink* most_lossy(std::size_t number = 0) const;

 private:
  std::vector<std::string> specs_ = {"star"};
  std::string rates_;
  std::string latencies_us_;
  std::vector<LinkSpeed> speeds_ = {{}};
  std::vector<MeasuredNetwork> measured_;  // of each spec, or none
};

// What the loss of that link means for predictions: a sentence.
std::string loss_text(const MeasuredLink&);

// The names of the algorithms that build all_reduce.
std::vector<std::string_view> all_reduce_algorithms();

}  // namespace ranvier::simulation
