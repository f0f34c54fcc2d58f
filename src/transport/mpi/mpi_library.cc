#include "transport/mpi/mpi_library.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

// Which any thread may ask, at any time.
bool has_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

}  // namespace

MpiLibrary& MpiLibrary::get() {
  static auto* const library = new MpiLibrary;  // never destroyed: threads may still poll while the process exits
  return *library;
}

MpiLibrary::MpiLibrary() {
  if (has_ended())
    throw Error(ErrorKind::config,
                "MPI has been ended in this process and cannot be started again; use transport mpi "
                "before MPI_Finalize");
  int started = 0;
  MPI_Initialized(&started);
  if (started == 0) {
    // Without mpirun this process is a world of its own, which needs no daemon to speak to; Open MPI would start one.
    if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads_), "MPI_Init_thread");
    std::atexit([] { get().end(); });
  } else {
    check(MPI_Query_thread(&threads_), "MPI_Query_thread");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  int* most = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &known);
  if (known != 0) most_tag_ = *most;
  if (threads_ < MPI_THREAD_SERIALIZED && rank_ == 0)
    std::fprintf(
        stderr,
        "ranvier: MPI was started with %s, so only the main thread moves data: operations make no progress while "
        "the program computes; start MPI with MPI_THREAD_SERIALIZED, or let ranvier start it\n",
        threads_ == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
}

// mpirun ends a job whose processes leave without it. A process that fails calls it as well: MPI waits there for the
// others, whom the control plane has told.
void MpiLibrary::end() {
  const std::lock_guard lock(calls_);
  if (!has_ended()) MPI_Finalize();
}

std::unique_lock<std::mutex> MpiLibrary::calls() {
  std::unique_lock lock(calls_);
  if (has_ended()) throw Error(ErrorKind::aborted, "MPI has been ended in this process, which exits");
  return lock;
}

bool MpiLibrary::may_be_called() const {
  if (has_ended()) return false;
  if (threads_ >= MPI_THREAD_SERIALIZED) return true;
  int main = 0;
  MPI_Is_thread_main(&main);
  return main != 0;
}

MPI_Comm MpiLibrary::communicator(std::chrono::steady_clock::time_point deadline,
                                  const std::function<void()>& check_peers) {
  auto lock = calls();
  if (communicator_ != MPI_COMM_NULL) return communicator_;
  if (!std::exchange(begun_, true)) check(MPI_Comm_idup(MPI_COMM_WORLD, &made_, &making_), "MPI_Comm_idup");
  for (int done = 0;;) {
    check(MPI_Test(&making_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) break;
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error(ErrorKind::timeout,
                  fmt::format("not all {} processes of the MPI job have come to transport mpi; let every process that "
                              "mpirun starts be a rank",
                              size_));
    lock.unlock();
    check_peers();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock = calls();
    if (communicator_ != MPI_COMM_NULL) return communicator_;  // by another thread
  }
  check(MPI_Comm_set_errhandler(made_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return communicator_ = made_;
}

int MpiLibrary::new_tags(std::int64_t count) {
  if (next_tag_ + count > most_tag_)
    throw Error(
        ErrorKind::config,
        fmt::format("the communicators of this process need more than the {} tags that this MPI has; make fewer "
                    "groups, or use another transport for them",
                    most_tag_));
  return static_cast<int>(std::exchange(next_tag_, next_tag_ + count));
}

void MpiLibrary::check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(ErrorKind::unreachable,
              fmt::format("{} failed: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace ranvier::transport
