// The results of `ranvier bench`: the columns of nccl-tests, and the same as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/sampling.h"
#include "bench/world.h"

namespace ranvier::bench {

class Report {
 public:
  // The worlds outlive it. `absent`: why baselines that were wished for are missing, a sentence each.
  Report(const Options&, const World& ours, std::vector<const World*> baselines,
         const std::vector<std::string>& absent);

  void print_header() const;
  void print(const Row&) const;
  nlohmann::json row_json(const Row&) const;
  nlohmann::json json(const std::vector<Row>&) const;

 private:
  const Options& options_;
  const World& ours_;
  std::vector<const World*> baselines_;
  std::vector<std::string> absent_;
  const bool may_lose_;  // ours loses gradients
};

}  // namespace ranvier::bench
