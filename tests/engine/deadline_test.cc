// A deadline ends an operation also while all goes on moving, only too slowly: nothing ever blocks long enough for
// anybody to look at a clock for that reason.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Rank 0 of 2, whose peer sends what it is sent: the same call, with the same values. A few bytes at a time, each of
// which takes a while; `rests`: and every second attempt moves nothing.
class Trickle final : public Transport {
 public:
  explicit Trickle(bool rests) : rests_(rests) {}

  Rank rank() const override { return 0; }
  Rank world() const override { return 2; }
  // Whoever gives up early would look at the clock.
  TransportTraits traits() const override {
    return {.name = "trickle",
            .slice_bytes = 4096,
            .buffered_bytes = 1 << 20,
            .ranks_per_core = 1,
            .polls_before_yield = 1'000'000,
            .polls_before_wait = 2'000'000};
  }

  std::size_t try_send(Rank, Lane lane, ConstBytes head, ConstBytes body) override {
    if (is_resting(sends_)) return 0;
    body = body.first(std::min(body.size(), most_));
    take_time();
    auto& stream = streams_.at(lane).bytes;
    stream.insert(stream.end(), head.begin(), head.end());
    stream.insert(stream.end(), body.begin(), body.end());
    return head.size() + body.size();
  }
  bool sent(Rank, Lane) override { return true; }
  ConstBytes try_recv(Rank, Lane lane, Bytes into) override {
    if (is_resting(receives_)) return {};
    const Stream& stream = streams_.at(lane);
    const ConstBytes here = ConstBytes(stream.bytes).subspan(stream.read);
    if (into.empty() || here.empty()) return here.first(std::min(here.size(), head_bytes + most_));
    take_time();
    const std::size_t size = std::min({here.size(), into.size(), most_});
    std::memcpy(into.data(), here.data(), size);
    streams_.at(lane).read += size;
    return into.first(size);
  }
  void release(Rank, Lane lane, std::size_t bytes) override { streams_.at(lane).read += bytes; }
  void wait(std::chrono::nanoseconds) override {}
  void interrupt() override {}
  void cancel() override {}

  void flow_freely(bool freely) { most_ = freely ? all : few; }

 private:
  struct Stream {
    std::vector<std::byte> bytes;
    std::size_t read = 0;
  };
  static constexpr std::size_t few = 4, all = 1 << 30, head_bytes = 32;

  bool is_resting(unsigned& attempts) const { return rests_ && attempts++ % 2 == 0; }
  void take_time() const {
    if (most_ == all) return;
    for (const auto until = steady_clock::now() + 4us; steady_clock::now() < until;) continue;
  }

  const bool rests_;
  std::size_t most_ = few;
  unsigned sends_ = 0, receives_ = 0;
  std::array<Stream, lane_count> streams_;
};

// 512 KiB, four bytes in as many microseconds.
constexpr std::size_t many_values = 128 << 10;
constexpr auto timeout = 30ms;

class Deadline : public testing::TestWithParam<bool> {
 protected:
  Deadline() {
    auto transport = std::make_unique<Trickle>(GetParam());
    transport_ = transport.get();
    comm_ =
        Communicator::over(std::move(transport), {.algorithm = "ring", .timeout = 60s, .background_progress = false});
  }
  void expect_timeout(const std::function<void()>& call, const char* operation) {
    try {
      call();
      ADD_FAILURE() << operation << " went on to its end";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_THAT(error.what(), testing::HasSubstr(operation));
      EXPECT_THAT(error.flight_record(), testing::HasSubstr(operation));
    }
  }

  Trickle* transport_;
  std::unique_ptr<Communicator> comm_;
  std::vector<float> data_ = std::vector<float>(many_values, 1);
};

TEST_P(Deadline, ends_a_blocking_call_that_goes_on_moving) {
  expect_timeout([&] { comm_->all_reduce(data_, {.timeout = timeout}); }, "all_reduce");
}

TEST_P(Deadline, ends_a_started_one_that_goes_on_moving) {
  expect_timeout([&] { comm_->start({.input = data_, .output = data_, .timeout = timeout}).wait(); }, "all_reduce");
}

TEST_P(Deadline, ends_a_blocking_call_beside_others) {
  std::vector<float> other(many_values, 1);
  const Work beside = comm_->start({.input = other, .output = other, .timeout = 60s});
  expect_timeout([&] { comm_->all_reduce(data_, {.timeout = timeout}); }, "all_reduce");
}

TEST_P(Deadline, ends_a_message_that_goes_on_being_sent) {
  expect_timeout([&] { comm_->start_send(data_, 1, 0, timeout).wait(); }, "send");
}

TEST_P(Deadline, ends_a_message_that_goes_on_arriving) {
  transport_->flow_freely(true);
  comm_->send(data_, 1);
  transport_->flow_freely(false);
  std::vector<float> got(many_values);
  expect_timeout([&] { comm_->start_recv(got, 1, 0, timeout).wait(); }, "recv");
}

TEST_P(Deadline, lets_what_is_in_time_end) {
  transport_->flow_freely(true);
  comm_->all_reduce(data_, {.timeout = 60s});
  EXPECT_THAT(data_, testing::Each(2.0F));
}

INSTANTIATE_TEST_SUITE_P(, Deadline, testing::Bool(),
                         [](const auto& each) { return std::string(each.param ? "with_rests" : "without_rests"); });

}  // namespace
}  // namespace ranvier
