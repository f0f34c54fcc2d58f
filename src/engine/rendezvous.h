// How ranks that know nothing of one another but a store, or an older communicator, come to hold links.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/control_plane.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "ranvier/tuning.h"

namespace ranvier::engine {

// Gives every rank's text to every rank: takes this rank's, returns all, by rank. All ranks call it as often.
using Exchange =
    std::function<std::vector<std::string>(const std::string& mine, std::chrono::steady_clock::time_point deadline)>;

// Through a store, which may still hold what an earlier attempt of the same job left there. Throws Error{timeout}
// naming the ranks that did not come before the deadline, and the setting that gives them longer, as `options` do; of a
// group also Error{peer_lost} within a second where its siblings know why a rank will not come.
Exchange exchange_through(Store& store, Rank rank, Rank world, const CommunicatorOptions& options = {});

struct Links {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Transport> transport;
  // Where there are several hosts of so many consecutive ranks each, the last of which may have fewer; else 0, or where
  // the transport does not look for hosts.
  Rank ranks_per_node = 0;
  bool on_one_host = false;  // all ranks, and none of them in a node of another name
  bool hosts_apart = false;  // each rank has a host, or a node of another name, for itself
  // Of a part of a world whose ranks share cores: as the whole, however few they are.
  bool crowded = false;
  // What all of them follow: each rank's own, which are the same, or with CommunicatorOptions::learn the first rank's.
  TuningTable tuning = {};
};

// Where the last rank came shortly before the deadline, all of them still have that long for each step of connecting.
// They are there by then, and it takes milliseconds.
constexpr std::chrono::seconds least_to_connect(1);

// Called by all ranks where they have learned from one exchange that they will not meet.
using Parting = std::function<void()>;

// Of an exchange through a store: a moment in which all come to know it, since the store may be in a process that ends
// now. That outlives it. Who meet over an older communicator need none.
Parting parting_through(const Exchange&);

// Instead of meeting: tells the others, who would wait for this rank, why it cannot. Waits for those that are late, as
// they would for it: what it leaves in a store counts only while it is there. Where that takes some seconds, it says on
// stderr what it waits to tell.
void decline(const std::exception& why, const Exchange&, std::chrono::steady_clock::time_point deadline,
             const Parting& = {});
// The same for programs that have said it.
void decline_silently(const std::exception& why, const Exchange&, std::chrono::steady_clock::time_point deadline,
                      const Parting& = {});

// Opens endpoints, exchanges their addresses once, and connects: first the control plane, which from then on finds out
// when a rank is lost. Declines where it cannot open them. Until the addresses are exchanged a rank that is lost cannot
// be told from one that is late, unless another group has lost it.
Links meet(WorldInfo, const CommunicatorOptions&, const TuningTable&, const Exchange&,
           std::chrono::steady_clock::time_point deadline, ControlEvents events, const Parting& = {});

}  // namespace ranvier::engine
