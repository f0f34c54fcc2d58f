// How much of a line is fair to take where somebody else keeps its queue full: half.
//
// A model of the path (bbr.h) knows one flow. Beside one that fills whatever queue there is, as TCP's CUBIC does (RFC
// 9438), it starves where the queue is deep, since it holds on to the path's own round trip, and takes nearly all where
// the queue is shallow, since it does not yield to loss (R. Ware, M. K. Mukerjee, S. Seshan, J. Sherry, "Modeling BBR's
// Interactions with Loss-Based Congestion Control", IMC 2019). So there are two ways to go, told apart as in V. Arun,
// H. Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018, 2.2: a queue that has
// not been empty for many round trips is somebody else's, too. Unless what has arrived meanwhile is what the line
// carries, which is measured apart from what one gets of it (line_rate.h).
//
// Beside somebody else packets leave at half of the line's rate, whatever the queue is and whatever is lost: a flow
// that probes for what is left finds the other half, by loss or by delay. Where even that loses much, others leave
// less: then it is less, and comes back little by little.
//
// Flows of this kind do not escalate among themselves: where the queue is no longer than their models make, none of
// them takes more than it has.
//
// Pure: no clock, no socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/line_rate.h"

namespace ranvier::transport {

class FairShare {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  // What an acknowledgement told.
  struct Sample {
    Time now;
    Duration round_trip{};                   // 0: unknown
    Duration way_back{};                     // of it: what the acknowledgement waited behind others
    Duration least{};                        // the path's own
    std::size_t acknowledged = 0, lost = 0;  // bytes
    double arrival_rate = 0;                 // bytes a second, while the packet was on its way; 0: unknown
    double line = 0;                         // bytes a second; 0: nothing new
    std::uint32_t flows = 1;                 // of one job, this one among them
    bool held_by_caller = false;             // it sends no more than it does for lack of something to send
  };

  void sample(const Sample&);

  // Whether somebody else is in the queue, and then the rate to send at, and the most bytes that may be under way.
  bool shared() const { return shared_; }
  double rate() const;
  double window() const;
  // Whether the line should be measured, which costs the sender something: now and then, and where it matters.
  bool asks_for_line() const { return lasted_ < enough_ / 8 && (judgements_ % 8 == 0 || shared_ || doubts_ > 0); }

 private:
  void judge(const Sample&);
  void begin(Time now);

  LineRate line_;
  bool shared_ = false;
  double round_trip_ = 0;  // smoothed, seconds
  double flows_ = 1;

  // Since the last judgement.
  Time began_{}, last_{};
  Duration lasted_{}, enough_{};
  double delivered_ = 0, lost_ = 0;
  unsigned judgements_ = 0;
  // Of the packets whose rate of arrival is known: how many they were, and found no queue, and were held.
  int count_ = 0, empty_ = 0, held_ = 0;
  // Of those that waited in a queue: what arrived with them, and how long they took.
  double arrival_rates_ = 0, round_trips_ = 0;

  // Alone: how often in a row one perhaps was not, and for how many judgements.
  int doubts_ = 0, alone_for_ = 1 << 20;
  // Beside others: what of the share is taken, and for how long the queue has been empty mostly.
  double part_ = 1;
  Duration unused_{};
};

}  // namespace ranvier::transport
