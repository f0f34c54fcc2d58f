// Collectives that the library beneath a transport runs are part of the order of all collectives.
#include <gmock/gmock.h>

#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

using testing::Each;
using testing::HasSubstr;

// Says of every collective but all_to_all that it is done.
class Library final : public VendorCollectives {
 public:
  std::string refusal(const VendorCall& call) const override {
    return call.collective == Collective::all_to_all ? "it has none" : "";
  }
  Transfer start(const VendorCall&) override { return 0; }
  bool over(Transfer) override { return true; }
};

class WithLibrary final : public support::TransportOver {
 public:
  using TransportOver::TransportOver;
  VendorCollectives* vendor_collectives() override { return &library_; }

 private:
  Library library_;
};

// Two ranks in a process; what each of them throws, or nothing.
template <class Body>
std::vector<std::string> errors_of(const CommunicatorOptions& options, const Body& body) {
  auto links = loopback_world(2);
  std::vector<std::string> told(2);
  const auto run = [&](std::size_t rank) {
    try {
      const auto comm = Communicator::over(std::make_unique<WithLibrary>(std::move(links[rank])), options);
      body(*comm);
      comm->leave();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      told[rank] = error.what();
    }
  };
  {
    const std::jthread other(run, 1);
    run(0);
  }
  return told;
}

TEST(VendorCalls, StandBetweenOthersWithoutALane) {
  const auto errors = errors_of({}, [](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> data(100, 1), urgent(3, 1), rooted(10, 0);
      const Work first = comm.start({.input = data, .output = data, .algorithm = "direct"});
      for (int call = 0; call < i % 3; ++call) comm.broadcast(rooted, 1, {.algorithm = "vendor"});
      comm.all_reduce(urgent, {.algorithm = "direct", .priority = i % 2});
      Work(first).wait();
      EXPECT_THAT(data, Each(2));
      EXPECT_THAT(urgent, Each(2));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(VendorCalls, ThatDifferAreNoticedByWhateverComesNext) {
  const auto errors = errors_of({}, [](Communicator& comm) {
    std::vector<float> data(10, 1);
    comm.all_reduce(data);
    comm.broadcast(data, 0, {.algorithm = "vendor"});
    comm.broadcast(data, comm.rank(), {.algorithm = "vendor"});
    comm.all_reduce(data);
    ADD_FAILURE() << "summed up";
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("what they have called before differs"));
    EXPECT_THAT(error, HasSubstr("broadcast #2 of f32 with 10 elements, root "));
  }
}

TEST(VendorCalls, OfACommunicatorsOwnChoiceAreThoseThatTheLibraryHas) {
  const auto errors = errors_of({.algorithm = "vendor"}, [](Communicator& comm) {
    std::vector<float> data(10, 1), other(10, 0);
    Work work = comm.start({.input = data, .output = data});
    work.wait();
    EXPECT_THAT(data, Each(1)) << "this library leaves it as it is";
    EXPECT_EQ(work.sequence(), 0U);
    comm.all_to_all(data, other);
    EXPECT_THAT(other, Each(1));
    EXPECT_THAT(comm.flight_record(), HasSubstr("#0 all_reduce"));
    EXPECT_THROW(comm.all_to_all(data, other, {.algorithm = "vendor"}), Error);
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace ranvier
