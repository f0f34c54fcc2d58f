// The service of guests at its port: how many connections may stand there, and which ones have to go.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "ranvier/guest_service.h"
#include "support/certificates.h"
#include "transport/strangers.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using namespace std::string_view_literals;
using support::Http2Caller;
using support::is_shown_out;
using support::stranger;
using ::testing::HasSubstr;

constexpr auto patience = 60s;
constexpr const char* pull_path = "/ranvier.v1.ParameterServer/Pull";
constexpr const char* push_path = "/ranvier.v1.ParameterServer/Push";
constexpr std::string_view parameters = "6 floats, as bytes: 7777";  // what a pull brings, whatever it means
constexpr std::size_t count = parameters.size() / sizeof(float);

class GuestDoor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = missing_guest_service(); !why.empty()) GTEST_SKIP() << why;
  }

  void begin_to_serve(const GuestLimits& limits = {}, const std::string& ip = "127.0.0.1", std::size_t values = count,
                      const SecurityOptions& security = {.insecure = true}) {
    service_ = guest_service({.parameters = values,
                              .guests = 64,
                              .pull =
                                  [this](Rank, std::span<float> into) {
                                    ++pulls_;
                                    std::memcpy(into.data(), parameters.data(), parameters.size());
                                  },
                              .push = [this](Rank, const GuestCalls::Push&, std::span<const float>) { ++pushes_; }},
                             {.interface_address = ip, .security = security, .limits = limits});
  }
  void serve(const GuestLimits& limits = {}, const std::string& ip = "127.0.0.1") {
    begin_to_serve(limits, ip);
    service_->open();
  }

  std::unique_ptr<Http2Caller> guest(const std::string& ip = "127.0.0.1") const {
    return std::make_unique<Http2Caller>(stranger(ip, service_->port()));
  }
  std::vector<Fd> strangers(std::size_t number) const {
    std::vector<Fd> crowd;
    while (crowd.size() < number) crowd.push_back(stranger("127.0.0.1", service_->port()));
    return crowd;
  }

  static std::size_t begin_pull(Http2Caller& caller, char guest = 3) {
    const std::size_t call = caller.begin(pull_path);
    caller.send_message(call, fmt::format("\x08{}", guest), true);
    return call;
  }
  // What is said to it.
  static std::string pull(Http2Caller& caller, char guest = 3) {
    return caller.answer(begin_pull(caller, guest), patience);
  }
  // One gradient of `share` 1 and `rate` 1; the call stays open until end_push().
  static std::size_t begin_push(Http2Caller& caller, char guest = 5) {
    const std::size_t call = caller.begin(push_path);
    const std::string one = "\0\0\0\0\0\0\xf0\x3f"s;
    caller.send_message(
        call, fmt::format("\x08{}\x10\x01\x19{}\x21{}\x32\x04{}", guest, one, one, std::string(4, '\0')), false);
    return call;
  }
  // The same, once they have come to where they are counted. Calls of one connection may be taken up in any order, so
  // that an answer to one of them says nothing of those before it; but of two pushes of one guest one is refused as
  // soon as the other has begun, and so it is with pulls.
  static std::size_t begin_counted_push(Http2Caller& caller, char guest = 5) {
    return that_is_counted(caller, guest, "push", {begin_push(caller, guest), begin_push(caller, guest)});
  }
  static std::size_t begin_counted_pull(Http2Caller& caller, char guest = 3) {
    return that_is_counted(caller, guest, "pull", {begin_pull(caller, guest), begin_pull(caller, guest)});
  }
  static std::size_t that_is_counted(Http2Caller& caller, char guest, std::string_view kind,
                                     const std::array<std::size_t, 2>& calls) {
    for (const auto until = std::chrono::steady_clock::now() + patience; std::chrono::steady_clock::now() < until;)
      for (const std::size_t i : {0, 1}) {
        const std::string said = caller.answer(calls[i], 5ms);
        if (said.empty()) continue;
        EXPECT_THAT(said, HasSubstr(fmt::format("a {} of guest {} is under way", kind, static_cast<int>(guest))));
        return calls[1 - i];
      }
    ADD_FAILURE() << "neither " << kind << " was refused";
    return calls[0];
  }
  static std::string end_push(Http2Caller& caller, std::size_t call, std::chrono::milliseconds limit = patience) {
    const std::size_t bytes = (count - 1) * sizeof(float);
    const std::string values(bytes, '\0');
    caller.send_message(call, fmt::format("\x28\x01\x32{}{}", static_cast<char>(bytes), values), true);
    return caller.answer(call, limit);
  }

  std::atomic<int> pulls_ = 0, pushes_ = 0;
  std::unique_ptr<GuestService> service_;
};

TEST_F(GuestDoor, AGuestIsServedAtAnyAddress) {
  for (const auto& [listens, calls] : {std::pair{"127.0.0.1", "127.0.0.1"}, {"", "127.0.0.1"}, {"", "::1"}}) {
    serve({}, listens);
    if (calls == "::1"sv && !stranger(calls, service_->port())) continue;  // this host has no IPv6
    const auto caller = guest(calls);
    EXPECT_THAT(pull(*caller), HasSubstr(parameters)) << calls;
    EXPECT_THAT(pull(*caller), HasSubstr(parameters)) << "once more";
    EXPECT_NE(end_push(*caller, begin_push(*caller)), "") << calls;
  }
  EXPECT_EQ(pushes_, 3);
}

TEST_F(GuestDoor, OfIdleConnectionsTheOldestHaveToGo) {
  serve();
  constexpr std::size_t all = 200, most = 64;
  const auto crowd = strangers(all);
  for (const Fd& each : crowd) ASSERT_TRUE(each);
  for (std::size_t i = 0; i < all - most; ++i) EXPECT_TRUE(is_shown_out(crowd[i], patience)) << i;
  for (std::size_t i = all - most; i < all; ++i) EXPECT_FALSE(is_shown_out(crowd[i])) << i;
  const auto late = guest();
  EXPECT_THAT(pull(*late), HasSubstr(parameters)) << "an honest one gets through";
  EXPECT_TRUE(is_shown_out(crowd[all - most], patience)) << "in the place of another one";
}

TEST_F(GuestDoor, WhoseCallIsUnderWayStays) {
  serve();
  const auto busy = guest(), idle = guest();
  EXPECT_THAT(pull(*idle), HasSubstr(parameters));
  const std::size_t call = begin_counted_push(*busy);
  constexpr std::size_t all = 200, most = 64;
  const auto crowd = strangers(all);
  EXPECT_TRUE(is_shown_out(idle->socket(), patience));
  // Whoever has connected may still wait to be let in: the last one has been once this one has had to go for it.
  EXPECT_TRUE(is_shown_out(crowd[all - most - 1], patience));
  EXPECT_NE(end_push(*busy, call), "");
  EXPECT_EQ(pushes_, 1);
  // Now it is the one that has been idle for the shortest time.
  const auto more = strangers(63);
  EXPECT_THAT(pull(*busy), HasSubstr(parameters));
}

TEST_F(GuestDoor, WhoSpeaksAnotherLanguageDisturbsNobody) {
  serve();
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings = "\0\0\0\4\0\0\0\0\0"s;
  const std::array said{""s,
                        "GET / HTTP/1.1\r\nHost: ranvier\r\n\r\n"s,
                        "SSH-2.0-OpenSSH_9.2p1\r\n"s,
                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s,  // a TLS hello, of which no more comes
                        preface.substr(0, 10),
                        preface + std::string(5000, '\xff'),
                        preface + settings + "\0\xff\xff\1\x25\0\0\0\1"s + std::string(9000, 'h'),
                        preface + settings + "\xff\xff\xff\0\0\0\0\0\1"s + std::string(9000, 'd')};  // 16 MiB of data
  std::vector<Fd> crowd;
  for (int round = 0; round < 3; ++round) {
    for (const std::string& words : said) {
      crowd.push_back(stranger("127.0.0.1", service_->port()));
      ASSERT_TRUE(crowd.back());
      send(crowd.back().get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    const auto caller = guest();
    EXPECT_THAT(pull(*caller), HasSubstr(parameters)) << round;
    EXPECT_NE(end_push(*caller, begin_push(*caller)), "") << round;
  }
  EXPECT_EQ(pushes_, 3) << "of those that are guests";
}

TEST_F(GuestDoor, StrangersFillNoLog) {
  support::Certificates certificates;
  certificates.add("rank", "ours");
  testing::internal::CaptureStderr();
  begin_to_serve({}, "127.0.0.1", count, certificates.options("rank"));
  service_->open();
  const std::string said = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 100; ++i) {
    const Fd one = stranger("127.0.0.1", service_->port());
    send(one.get(), said.data(), said.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(is_shown_out(one, patience)) << i;
  }
  service_.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LT(std::ranges::count(log, '\n'), 20) << log;
}

TEST_F(GuestDoor, CallsOfTooManyAreRefusedByASentence) {
  constexpr std::size_t most = 4;
  serve({.calling = most, .idle = 2});
  std::vector<std::unique_ptr<Http2Caller>> callers;
  std::vector<std::array<std::size_t, 2>> calls;
  char guests = 0;
  const auto begin_calls = [&] {
    // Those of one connection count once.
    auto& begun = calls.emplace_back();
    for (std::size_t& call : begun) call = begin_counted_push(*callers.back(), ++guests);
    EXPECT_THAT(pull(*callers.back()), HasSubstr(parameters));
  };
  while (callers.size() < most) {
    callers.push_back(guest());
    begin_calls();
  }
  const auto is_refused = [](Http2Caller& caller) {
    return pull(caller).find("4 connections have calls under way, and no more may; call again when some have ended") !=
           std::string::npos;
  };
  const auto gets_through = [](Http2Caller& caller) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until)
      if (pull(caller).find(parameters) != std::string::npos) return true;
    return false;
  };
  auto next = guest();
  EXPECT_TRUE(is_refused(*next));
  EXPECT_TRUE(gets_through(*callers.front())) << "who calls already may call more";

  // One that leaves in the midst of its calls makes room …
  callers.pop_back();
  EXPECT_TRUE(gets_through(*next));
  callers.push_back(std::move(next));
  begin_calls();
  // … and so does one whose calls end.
  const auto last = guest();
  EXPECT_TRUE(is_refused(*last));
  for (const std::size_t call : calls.front()) EXPECT_NE(end_push(*callers.front(), call), "");
  EXPECT_TRUE(gets_through(*last));
}

// gRPC's own threads, of which there are at most 16, stay free to hear what else is said.
TEST_F(GuestDoor, WhoWaitsIsHeardAndKeepsNobodyElseFromIt) {
  begin_to_serve();
  std::vector<std::pair<std::unique_ptr<Http2Caller>, std::size_t>> waiting;
  const auto begin_pulls = [&] {
    for (char number = 0; number < 32; ++number) {
      auto caller = guest();
      const std::size_t call = begin_pull(*caller, number);
      waiting.emplace_back(std::move(caller), call);
    }
  };
  const auto answers = [&] {
    for (const auto& [caller, call] : waiting) EXPECT_THAT(caller->answer(call, patience), HasSubstr(parameters));
    waiting.clear();
  };
  const auto all_are_heard = [&] {
    for (const auto& [caller, call] : waiting)
      if (!caller->is_heard(patience)) return false;
    const auto another = guest();
    return pull(*another, 64).find("guest 64 is not from 0 to 63") != std::string::npos;
  };
  begin_pulls();
  ASSERT_TRUE(all_are_heard());
  EXPECT_EQ(pulls_, 0);
  service_->open();
  answers();

  service_->close();
  begin_pulls();
  ASSERT_TRUE(all_are_heard()) << "once more";
  EXPECT_EQ(pulls_, 32);
  service_->open();
  answers();
}

TEST_F(GuestDoor, WhoLeavesWhileItWaitsIsForgotten) {
  begin_to_serve({.calling = 1});
  auto leaver = guest();
  const auto next = guest();
  end_push(*leaver, begin_counted_push(*leaver), {});
  begin_pull(*leaver);
  ASSERT_TRUE(leaver->is_heard(patience));
  EXPECT_THAT(pull(*next, 64), HasSubstr("1 connections have calls under way"));
  leaver.reset();
  const auto comes_in = [&] {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until)
      if (pull(*next, 64).find("guest 64 is not") != std::string::npos) return true;
    return false;
  };
  ASSERT_TRUE(comes_in());
  const std::size_t call = begin_pull(*next);
  service_->open();
  EXPECT_THAT(next->answer(call, patience), HasSubstr(parameters));
  EXPECT_EQ(pulls_, 1);
  EXPECT_EQ(pushes_, 0);
}

TEST_F(GuestDoor, WhoWaitsIsToldOfTheEnd) {
  begin_to_serve();
  const auto caller = guest(), another = guest();
  const std::size_t call = begin_pull(*caller), push = begin_counted_push(*another);
  end_push(*another, push, {});
  EXPECT_TRUE(caller->is_heard(patience) && another->is_heard(patience));
  std::jthread ending([this] { service_.reset(); });
  EXPECT_THAT(caller->answer(call, patience), HasSubstr("the job ends"));
  EXPECT_THAT(another->answer(push, patience), HasSubstr("the job ends"));
}

TEST_F(GuestDoor, AGuestHasOnePullUnderWay) {
  begin_to_serve();
  const auto caller = guest(), another = guest();
  const std::size_t first = begin_counted_pull(*caller), second = begin_counted_pull(*caller, 4);
  EXPECT_THAT(pull(*another), HasSubstr("a pull of guest 3 is under way; wait for its end"));
  const std::size_t push = begin_counted_push(*another, 3);  // beside it
  service_->open();
  EXPECT_THAT(caller->answer(first, patience), HasSubstr(parameters));
  EXPECT_THAT(caller->answer(second, patience), HasSubstr(parameters));
  for (int round = 0; round < 20; ++round) EXPECT_THAT(pull(*another), HasSubstr(parameters)) << round;
  EXPECT_NE(end_push(*another, push), "");
  EXPECT_EQ(pushes_, 1);
}

TEST_F(GuestDoor, WhoWaitsTakesNoMemoryOfAModel) {
  constexpr std::size_t model = 16 << 20, guests = 16;
  begin_to_serve({}, "127.0.0.1", model / sizeof(float));
  const auto in_use = [] {
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const std::size_t before = in_use();
  const auto caller = guest();
  for (char number = 0; number < static_cast<char>(guests); ++number) begin_counted_pull(*caller, number);
  EXPECT_LT(in_use(), before + model);
}

// Nor do those that a guest leaves fill the memory: until it has read one, or has gone, it is given no other.
TEST_F(GuestDoor, WhoReadsNothingIsGivenNothingElse) {
  begin_to_serve({}, "127.0.0.1", std::size_t{1} << 20);
  service_->open();
  auto slow = guest();
  begin_counted_pull(*slow);
  const auto next = guest();
  const auto is_refused = [&] { return pull(*next).find("a pull of guest 3 is under way") != std::string::npos; };
  const auto until = std::chrono::steady_clock::now() + patience;
  while (pulls_ == 0 && std::chrono::steady_clock::now() < until) slow->hear(5ms);
  EXPECT_TRUE(is_refused());
  EXPECT_EQ(pulls_, 1);
  slow.reset();
  std::size_t call = begin_pull(*next);
  while (pulls_ == 1 && std::chrono::steady_clock::now() < until)
    if (!next->answer(call, 5ms).empty()) call = begin_pull(*next);
  EXPECT_EQ(pulls_, 2);
}

TEST_F(GuestDoor, WhoSendsPartsOfMessagesFillsNoMemory) {
  constexpr std::ptrdiff_t all = 100, part = 60'000;
  serve({.unread_bytes = all * part / 4});
  std::vector<std::unique_ptr<Http2Caller>> crowd;
  for (int number = 0; number < all; ++number) {
    crowd.push_back(guest());
    crowd.back()->send_part(crowd.back()->begin(push_path), 1 << 20, std::string(part, '\0'));
  }
  const auto left = [&] {
    return std::ranges::count_if(crowd, [](const auto& each) {
      each->hear({});
      return each->open() > 0 && !each->is_closed();
    });
  };
  const auto until = std::chrono::steady_clock::now() + patience;
  while (left() > all / 2 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(5ms);
  EXPECT_LE(left(), all / 2);
  const auto gets_through = [&] {
    while (std::chrono::steady_clock::now() < until)
      if (pull(*guest()).find(parameters) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(gets_through());
}

}  // namespace
}  // namespace ranvier
