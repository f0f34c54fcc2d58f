// Who is alive, and how a failure reaches everybody: apart from the data, on connections and a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/call_history.h"
#include "engine/inquiry.h"
#include "engine/message_header.h"
#include "ranvier/error.h"
#include "ranvier/security.h"
#include "ranvier/transport.h"

namespace ranvier::transport {
struct TcpDoor;
}

namespace ranvier::engine {

struct ControlOptions {
  std::chrono::milliseconds suspect_after = std::chrono::seconds(1);
  std::chrono::milliseconds dead_after = std::chrono::seconds(3);
  std::string interface_address = {};  // see TcpOptions
  SecurityOptions security = {};
  Names names = {};
  bool calls = false;  // see MeetingOptions
};

// They are called on the control thread and must not block; none is called after ~ControlPlane has returned.
struct ControlEvents {
  std::function<void(const Error&)> on_fault;  // at most once: the first death or abort that this rank learnt of
  std::function<void(Rank)> on_departure;      // `rank` left in good order; what it had sent is still to be read
  std::function<void()> on_beat = {};          // a few times a second
};

// When anything last came from a neighbour otherwise than by the control plane, if that is known; likewise.
using Signs = std::function<std::optional<std::chrono::steady_clock::time_point>(Rank)>;

// What a rank answers; on the control thread, which it must not block.
using Answering = std::function<std::pair<Answer, std::string>(const Question&)>;

// Ranks are joined in a circulant graph (each to those 1, 2, 4, … away, in both directions), so that a job of any size
// costs a rank 2 log2(world) connections, and news that each rank passes on reaches all in log2(world) hops, whoever
// else has died meanwhile.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;  // leaves, unless it has
  // Says goodbye: the others see a departure, not a death. Gives the mismatch of calls that has shown, if only then.
  virtual std::optional<Error> leave() = 0;
  // From now on the others are told of these calls, and theirs are compared with them.
  virtual void follow(std::shared_ptr<const CallHistory> calls) = 0;
  // From now on questions of the others are answered.
  virtual void answer_by(Answering answering) = 0;
  // From now on a neighbour of which nothing is heard is not silent while it gives other signs of life: where packets
  // are lost tcp waits for longer and longer, and heartbeats with it.
  virtual void look_for(Signs signs) = 0;
  // Asks another rank: see ControlWatch::ask. Safe from any thread, as is finding(): what has been answered so far.
  virtual void ask(Rank whom, const Question& question) = 0;
  virtual std::optional<Finding> finding() = 0;
  // Tells every rank that the job cannot go on, and why. On return the news is with the kernel. Safe from any thread.
  virtual void abort(const Error& why) = 0;
  // This rank has not got on in `call` for a while: neighbours that wait in something else under the same number find
  // out. Safe from any thread.
  virtual void waits_in(const MessageHeader& call) = 0;
};

class ControlEndpoint {
 public:
  virtual ~ControlEndpoint() = default;
  virtual std::string address() const = 0;
  virtual std::unique_ptr<ControlPlane> connect(const std::vector<std::string>& addresses,
                                                std::chrono::steady_clock::time_point deadline,
                                                ControlEvents events) = 0;
};
// `door`: see MeetingOptions. It is let go of when the endpoint is gone, though the control plane stays.
std::unique_ptr<ControlEndpoint> control_endpoint(const WorldInfo&, const ControlOptions&,
                                                  std::shared_ptr<transport::TcpDoor> door = {});

}  // namespace ranvier::engine
