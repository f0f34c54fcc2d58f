// One collective with given arguments: makes its memory, and judges what came out against the definition of the
// collective, computed without any of ranvier's algorithms.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "conformance/values.h"
#include "ranvier/communicator.h"

namespace ranvier::conformance {

struct Case {
  Collective collective = Collective::all_reduce;
  std::string algorithm = "auto";
  std::size_t count = 1;  // elements of the vector (all_reduce, reduce, broadcast), else of one part
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  bool in_place = false;
  bool uneven = false;       // parts of different sizes, some empty
  std::size_t misalign = 0;  // bytes between the memory's alignment and its first element
  std::size_t salt = 0;      // other values for every case
  bool allocated = false;    // in memory of Communicator::allocate
};

std::string describe(const Case&);

// One rank's side of a case. Its memory lives as long as it does.
class CaseRun {
 public:
  CaseRun(const Case&, Communicator&);
  CaseRun(const CaseRun&) = delete;  // the request points into it
  CaseRun& operator=(const CaseRun&) = delete;

  const Request& request() const { return request_; }
  // Adds a test failure unless the output is what it must be, the input is as it was, and nothing was written beside
  // them.
  void check() const;
  // Adds a test failure if the output holds anything but what was there and what came from this very rank.
  void check_unused() const;

 private:
  // Memory with a border of known bytes on both sides.
  struct Guarded {
    std::shared_ptr<std::byte[]> bytes = nullptr;
    std::size_t total = 0;  // borders included
    std::size_t begin = 0;
    std::size_t size = 0;
    ConstBytes all() const { return {bytes.get(), total}; }
    Bytes inside() { return {bytes.get() + begin, size}; }
    ConstBytes inside() const { return {bytes.get() + begin, size}; }
  };

  Guarded make_memory(Communicator&, std::size_t size) const;
  std::size_t part(Rank from, Rank to) const;
  std::size_t parts_before(Rank end, Rank from) const;
  bool is_root() const { return rank_ == case_.root; }
  Values input_of(Rank rank) const;
  Values reduced(std::size_t begin, std::size_t count) const;
  bool has_output() const;
  Values expected() const;
  void check_values() const;
  void check_unchanged(const Guarded& now, const std::vector<std::byte>& before, std::size_t begin, std::size_t size,
                       const char* problem) const;
  std::string where() const;

  Case case_;
  Rank rank_;
  Rank world_;
  Guarded input_;
  Guarded output_;                       // in place: of both, and input_ is empty
  std::vector<std::byte> before_input_;  // copies of all of the two, borders included
  std::vector<std::byte> before_output_;
  std::size_t input_offset_ = 0;   // in place: of the input in output_, in bytes
  std::size_t output_offset_ = 0;  // in place: of the output in output_, in bytes
  std::size_t output_bytes_ = 0;
  Values expected_;
  std::vector<std::size_t> input_splits_;
  std::vector<std::size_t> output_splits_;
  Request request_;
};

// Runs a case on this rank and checks it; throws after a test failure, so that the test ends on all ranks.
void run_case(Communicator&, const Case&);

// The algorithms that can build `collective` for a world of this size, by name.
std::vector<std::string> algorithms_for(Collective, Rank world);

}  // namespace ranvier::conformance
