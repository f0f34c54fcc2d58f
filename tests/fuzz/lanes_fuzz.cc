// libFuzzer target: what a rank that runs wild writes on its lanes, in the midst of calls of another one. The first
// byte says what the other one has called; then come pieces, each behind a byte with its lane and one with its length.
// A call ends well or by an Error that names the wild rank, and nothing is written but to its memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace {

using namespace ranvier;
using namespace std::chrono_literals;

constexpr std::size_t count = 100;
constexpr std::uint64_t tag = 7;

void require(bool held, const char* said) {
  if (held) return;
  std::fputs(said, stderr);
  std::abort();
}

// Memory of exactly so many floats, so that a sanitizer sees what is written behind it.
std::vector<float> floats(std::size_t size) { return std::vector<float>(size, 1); }

class Called {
 public:
  Called(Communicator& comm, std::uint8_t what) {
    const auto start = [&](Collective collective, std::size_t input, std::size_t output, Rank root = 0) {
      Request request{.collective = collective, .root = root};
      request.input = ConstTypedSpan(memory(input));
      request.output = memory(output);
      if (collective == Collective::all_to_all) request.input_splits = request.output_splits = splits_;
      works_.push_back(comm.start(request));
    };
    switch (what % 9) {
      case 0:
        works_.push_back(comm.start_recv(memory(count), 1, tag));
        works_.push_back(comm.start_recv(memory(3), Communicator::any_rank, tag + 1));
        return;
      case 1:
        works_.push_back(comm.start_recv_at_most(memory(count), 1, tag));
        works_.push_back(comm.start_send(memory(5), 1, tag));
        return;
      case 2:
        start(Collective::all_reduce, count, count);
        start(Collective::all_reduce, 3, 3);
        return;
      case 3:
        start(Collective::broadcast, 0, count, 1);
        return;
      case 4:
        start(Collective::reduce_scatter, 2 * count, count);
        return;
      case 5:
        start(Collective::all_gather, count, 2 * count);
        return;
      case 6:
        start(Collective::all_to_all, 10, 10);
        return;
      case 7:
        start(Collective::gather, count, 2 * count);
        return;
      default:
        works_.push_back(comm.start({.collective = Collective::barrier}));
        works_.push_back(comm.start_recv_at_most(memory(count), 1, tag));
    }
  }

  // Whether all have ended.
  bool drive() {
    return std::ranges::all_of(works_, [](Work& work) { return work.wait_for(0ns); });
  }
  void wait() { Work::wait_all(works_); }

 private:
  TypedSpan memory(std::size_t size) {
    return TypedSpan(*memory_.emplace_back(std::make_unique<std::vector<float>>(floats(size))));
  }

  const std::array<std::size_t, 2> splits_{4, 6};
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::vector<Work> works_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  auto transports = loopback_world(2);
  const std::unique_ptr<Transport> wild = std::move(transports[1]);
  const auto comm = Communicator::over(std::move(transports[0]), {.timeout = 5s, .background_progress = false});
  Called called(*comm, data[0]);
  try {
    for (std::span rest(data + 1, size - 1); rest.size() >= 2;) {
      const auto lane = static_cast<Lane>(rest[0] % lane_count);
      ConstBytes piece = std::as_bytes(rest.subspan(2, std::min<std::size_t>(rest[1], rest.size() - 2)));
      rest = rest.subspan(2 + piece.size());
      // What finds no room is lost: nobody reads so much.
      piece = piece.subspan(wild->try_send(0, lane, {}, piece));
      if (called.drive()) break;
    }
    for (int looks = 0; looks < 3 && !called.drive();) ++looks;
    if (!called.drive()) comm->abort("no more is written");
    called.wait();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::aborted, error.what());
    require(error.kind() == ErrorKind::aborted || std::strstr(error.what(), "rank 1") != nullptr, error.what());
  }
  return 0;
}
