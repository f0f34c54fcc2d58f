// How much of a line is fair to take where somebody else keeps its queue full.
//
// A model of the path (bbr.h) knows one flow. Beside one that fills whatever queue there is, as TCP's CUBIC does (RFC
// 9438), it starves where the queue is deep, since it holds on to the path's own round trip, and takes nearly all where
// the queue is shallow, since it does not yield to loss (R. Ware, M. K. Mukerjee, S. Seshan, J. Sherry, "Modeling BBR's
// Interactions with Loss-Based Congestion Control", IMC 2019). So there are two ways to go, told apart as in V. Arun,
// H. Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018, 2.2: a queue that has
// not been empty for many round trips is somebody else's, too.
//
// Then the queue is asked. For two round trips less is under way; if dI bytes less shorten the round trip by dR, the
// line's rate is C = dI / dR, for what others have under way stays as it was: their windows open and close over many
// round trips. So C R bytes are under way in all, and half of them is this flow's share: its window from then on,
// raised as TCP raises its own and cut once for losses, until the queue is asked again a second later. A queue that is
// one's own alone shows itself, too. (P. Goyal et al., "Elasticity Detection: A Building Block for Internet Congestion
// Control", SIGCOMM 2022, measure what others send in the same spirit, from the rates into and out of a busy queue.)
//
// Flows of this kind do not escalate among themselves: a queue no longer than their models make is hardly added to.
//
// Pure: no clock, no socket.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ranvier::transport {

class FairShare {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  // What an acknowledgement told.
  struct Sample {
    Time now;
    Duration round_trip{};  // 0: unknown
    Duration way_back{};    // of it: what the acknowledgement waited behind others
    Duration least{};       // the path's own
    std::size_t in_flight = 0;
    double bandwidth = 0;         // the greatest rate that lately was one's own, bytes a second
    bool lost = false;            // anything
    bool lost_much = false;       // in the round trip that ends now
    bool held_by_caller = false;  // there is not enough to send: what is under way says nothing
  };

  void sample(const Sample&);

  // Whether somebody else is in the queue, and then the bytes that may be under way, and the rate to send them at.
  bool shared() const { return state_ != State::alone; }
  double window() const;
  double rate() const;

 private:
  enum class State : std::uint8_t { alone, asking, sharing };

  void measure(const Sample&);
  void share(const Sample&);
  void seen_empty(const Sample&);
  void leave(Time now);
  void ask();
  void give_up_asking(Time now);
  void listen(const Sample&);
  void conclude(Time now);
  void settle(Time now, double in_flight, double round_trip);
  double line_rate() const;

  State state_ = State::alone;
  Time empty_at_{}, queued_at_{};  // when the queue last was empty, and was not
  Time busy_at_{};                 // when there last was enough to send
  // Smoothed, seconds and bytes: the whole round trip, without the acknowledgement's wait, and what is on its way
  // there.
  bool measured_ = false;
  double whole_ = 0, round_trip_ = 0, in_flight_ = 0;
  double least_ = 0, longest_ = 0;
  double own_most_ = 0;  // of one's own rates: the line does at least that

  double window_ = 0, share_ = 0;
  Time grown_at_{}, ask_at_{};
  bool yielded_ = false;  // since the queue was last asked

  // While asking: as it was before, and what is found.
  double before_in_flight_ = 0, before_round_trip_ = 0, asking_window_ = 0;
  Time settled_at_{};
  double sum_in_flight_ = 0, sum_round_trip_ = 0, sum_whole_ = 0;
  int count_ = 0;

  std::array<double, 3> rates_{};  // of the line, as found lately
  std::size_t answers_ = 0;
};

}  // namespace ranvier::transport
