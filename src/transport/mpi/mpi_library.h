// MPI as this process has it: started once, called by one thread at a time, ended with the process.
//
// Everything that calls MPI holds calls(), its end too: MPI_THREAD_SERIALIZED is then enough, which costs an MPI
// library nothing, while MPI_THREAD_MULTIPLE makes it lock inside. Where a program has started MPI with less, only its
// main thread may call, see may_be_called().
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace ranvier::transport {

class MpiLibrary {
 public:
  // Starts MPI at the first call in this process, if the program has not. Throws Error{config} where MPI cannot run
  // here.
  static MpiLibrary& get();

  // Throws Error{aborted} once MPI has been ended: of a process that exits threads may still poll.
  std::unique_lock<std::mutex> calls();
  // False in threads that may not, and once MPI has been ended.
  bool may_be_called() const;

  int rank() const { return rank_; }  // in MPI_COMM_WORLD
  int size() const { return size_; }
  // A communicator of all its processes in which only ranvier sends. Made at the first call, for which all processes
  // have to come before `deadline`; meanwhile it calls `check_peers` again and again. Throws Error{timeout}, or what
  // that throws. Holds calls() at times.
  MPI_Comm communicator(std::chrono::steady_clock::time_point deadline, const std::function<void()>& check_peers);

  // The first of so many tags that this process has not given out before: communicators of one process, whatever their
  // sizes, share none. Throws Error{config} where MPI has no more. The caller holds calls().
  int new_tags(std::int64_t count);

  // Throws Error{unreachable} with MPI's own words.
  static void check(int code, const char* call);

 private:
  MpiLibrary();
  void end();

  std::mutex calls_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int most_tag_ = 32767;  // what every MPI has
  int threads_ = MPI_THREAD_SINGLE;
  std::int64_t next_tag_ = 0;
  MPI_Comm made_ = MPI_COMM_NULL;  // by making_, which a deadline may have left under way
  MPI_Request making_ = MPI_REQUEST_NULL;
  bool begun_ = false;
};

}  // namespace ranvier::transport
