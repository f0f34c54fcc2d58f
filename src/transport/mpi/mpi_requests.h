// MPI's requests by number. MPI_Request is a pointer in one MPI and an int in another; a number stays what it is when
// the request moves, and is never 0.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "transport/mpi/mpi_library.h"

namespace ranvier::transport {

class MpiRequests {
 public:
  std::uintptr_t add(MPI_Request request) {
    if (free_.empty()) {
      requests_.push_back(request);
      return requests_.size();
    }
    const std::uintptr_t number = free_.back();
    free_.pop_back();
    requests_[number - 1] = request;
    return number;
  }

  void replace(std::uintptr_t number, MPI_Request request) { requests_[number - 1] = request; }

  bool over(std::uintptr_t number) {
    int done = 0;
    MpiLibrary::check(MPI_Test(&requests_[number - 1], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) free_.push_back(number);
    return done != 0;
  }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<std::uintptr_t> free_;
};

}  // namespace ranvier::transport
