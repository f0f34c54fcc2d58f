// What goes on beside computing: collectives that share links and what codes and decodes, several under way at once.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/simulate/common_links.h"
#include "ranvier/simulate.h"

namespace ranvier::plan {

// How fast runs go on at the same time, each as a part of how fast it goes by itself. A run that keeps a link busy for
// a part of its time needs as much of it; all are slowed down alike until no link, and no codec, is needed for more
// than all of the time (max-min fair, as messages are), none beyond what it does alone. `first` has what it needs of
// each link before they do. Runs live as long as this does.
class SharedRates {
 public:
  struct Sharer {
    const SimulatedRun* run;
    double sending;  // the part of its time by itself in which it sends; in the rest its codec works
    auto operator<=>(const Sharer&) const = default;
  };
  explicit SharedRates(CommonLinks& links) : links_(links) {}
  const std::vector<double>& among(const std::vector<Sharer>&, const SimulatedRun* first);

 private:
  CommonLinks& links_;
  std::map<std::pair<std::vector<Sharer>, const SimulatedRun*>, std::vector<double>> known_;
};

// Collectives that share links, and what codes and decodes, for as long as they are under way together.
class UnderWay {
 public:
  struct Operation {
    const SimulatedRun* run;
    double sending_ns;  // by itself
    double codec_ns;

    double begin_ns = 0;
    double end_ns = 0;
    std::optional<std::size_t> behind = {};  // it could not begin before that one ended
    double exposed_ns = 0;                   // while nothing else goes on; what several take together is shared out
    double exposed_work = 0;                 // how much of it was done then, as a part
  };

  explicit UnderWay(SharedRates& rates) : rates_(rates) {}

  // Its number, in the order in which they are made known.
  std::size_t add(Operation);
  // At the time that has been reached.
  void begin(std::size_t number);
  // From then on, whether anything else goes on.
  void is_all_there_is(bool is) { nothing_else_ = is; }
  // Until then, or until the first ones have ended, which are appended; `first`, if there is one, has the links before
  // all of them.
  void go_on_until(double ns, const SimulatedRun* first, std::vector<std::size_t>& ended);

  bool empty() const { return active_.empty(); }
  double now() const { return now_; }
  std::vector<Operation>& operations() { return operations_; }
  const std::vector<Operation>& operations() const { return operations_; }

 private:
  SharedRates& rates_;
  std::vector<Operation> operations_;
  std::vector<double> left_ns_;      // of each, as if it were by itself
  std::vector<std::size_t> active_;  // by number
  std::vector<std::size_t> still_;   // kept to spare its making, like
  std::vector<SharedRates::Sharer> key_;
  double now_ = 0;
  bool nothing_else_ = false;
};

// Collectives take lanes in turn, in the order in which they are started; those of one lane go one after the other, as
// in a communicator.
class Overlap {
 public:
  using Operation = UnderWay::Operation;

  Overlap(SharedRates& rates, std::size_t lanes) : under_way_(rates), lanes_(lanes) {}

  // At the time that has been reached; its number.
  std::size_t start(Operation);
  // Until then, while `first`, if there is one, has the links before them.
  void go_on_until(double ns, const SimulatedRun* first = nullptr);
  // Until all have ended; when that was. What is left is exposed.
  double finish();

  const std::vector<Operation>& operations() const { return under_way_.operations(); }
  // When the last one ended, 0 before any; none while one is under way.
  std::optional<double> idle_since() const { return under_way_.empty() ? std::optional(last_ended_ns_) : std::nullopt; }

 private:
  UnderWay under_way_;
  std::vector<std::optional<std::size_t>> lanes_;  // which operation each has
  double last_ended_ns_ = 0;
  std::vector<std::size_t> ended_;
};

// When collectives that are started so have ended at the earliest, where only what each takes at least is known.
class LeastOverlap {
 public:
  explicit LeastOverlap(std::size_t lanes) : lanes_(lanes, 0) {}

  // `links`: how long at least each link that may be the busiest one of this `kind` is busy with it.
  void start(double now, double ns, double codec_ns, const void* kind, const std::vector<double>& links_ns);
  double end() const { return end_; }

 private:
  std::vector<double> lanes_;
  std::size_t next_ = 0;
  std::map<const void*, std::vector<double>> links_;
  double codec_ = 0;
  double end_ = 0;
};

}  // namespace ranvier::plan
