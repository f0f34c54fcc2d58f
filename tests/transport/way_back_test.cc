#include "transport/way_back.h"

#include <gtest/gtest.h>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using Time = WayBack::Time;

// Packets on a path of 5 ms each way between clocks that differ by `offset`.
class TimedPath {
 public:
  explicit TimedPath(std::chrono::nanoseconds offset) : offset_(offset) {}

  // What the acknowledgement is said to have waited, where it and its packet waited so long.
  WayBack::Duration told(std::chrono::nanoseconds there, std::chrono::nanoseconds back) {
    const Time sent = now_, arrived = sent + 5ms + there;
    now_ = arrived + 5ms + back;
    return way_back_.sample(sent, WayBack::microseconds(arrived + offset_), now_, there + back);
  }
  void pass(std::chrono::nanoseconds time) { now_ += time; }
  void drift(std::chrono::nanoseconds by) { offset_ += by; }

 private:
  WayBack way_back_;
  std::chrono::nanoseconds offset_;
  Time now_ = Time() + 1h;
};

TEST(WayBack, IsToldFromTheWayThereWhateverTheClocksShow) {
  for (const std::chrono::nanoseconds offset : {0s, 1s, 3000s, 4294s, -3s}) {
    TimedPath path(offset);
    EXPECT_EQ(path.told(0ms, 0ms), 0ms);
    EXPECT_LE(path.told(10ms, 0ms), 2us);
    EXPECT_NEAR(static_cast<double>((path.told(0ms, 25ms) - 25ms).count()), 0, 2000);
    EXPECT_NEAR(static_cast<double>((path.told(10ms, 25ms) - 25ms).count()), 0, 2000);
    EXPECT_EQ(path.told(0ms, 10s), 200ms) << "no queue";
  }
}

TEST(WayBack, ClocksMayRunApart) {
  for (const auto drift : {-100us, 100us}) {
    TimedPath path(0s);
    for (int second = 0; second < 600; ++second) {
      path.pass(1s);
      path.drift(drift);
      EXPECT_LE(path.told(0ms, 0ms), 1100us);
      EXPECT_LE(path.told(10ms, 0ms), 1100us);
      EXPECT_NEAR(static_cast<double>((path.told(0ms, 25ms) - 25ms).count()), 0, 1.1e6);
    }
  }
}

}  // namespace
}  // namespace ranvier::transport
