// Workers that push to parameter servers by groups: those of a group average their gradients, weighted by samples, and
// its first rank pushes for all of them. A group of one is an ordinary asynchronous worker. With a codec for the
// servers (ParameterServerOptions), a group's average goes by it as well, and what its first rank is told as it has
// been told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ranvier/exchange.h"
#include "ranvier/parameter_server.h"

namespace ranvier {

namespace replica {
class TeamPool;
}

// Servers keep no momentum, which one for all groups would be too much of: asynchrony has some by itself. A group may
// have its own, of the averages of its gradients; all of its members keep it, so that it outlives the group. Those of
// the next group, who may come from several, begin with the mean of theirs by samples.
//
// Where there are several groups, each looks ahead: what servers hold is where all will be when the gradient computed
// there arrives, as far as their momenta u tell, that is x - rate (m + … + m^k) (the sum of all groups' u by share),
// where each group pushes k times meanwhile: once, and twice by Answer::next_step. Nobody needs to know the others' u
// for that. With u = m u + g each pushes (1 + … + m^(k-1)) g + m^k u: by k = 1 Nesterov's step, by k = 0 plain
// momentum's, which is what a group by itself pushes. Hakimi, Barkai, Gabel and Schuster: Taming momentum in a
// distributed asynchronous environment (DANA-Slim), arXiv 1907.11612 (2019), for k = 1.
struct GroupMomentum {
  double factor = 0;
  std::span<float> velocity = {};  // as long as the gradient, and zeros at first; none: no momentum
};

// What a worker computes next begins from what the servers hold once its push has come there (`now`), or without
// waiting for that (`next_step`), while the push is under way: from what they held after the push before and this one,
// which is then missing what others have pushed meanwhile, and nothing of its own. Xu et al.: OD-SGD: one-step delay
// stochastic gradient descent for distributed training. ACM TACO 17 (2020).
enum class Answer : std::uint8_t { now, next_step };

struct AsyncGroupOptions {
  GroupMomentum momentum = {};  // its memory outlives the group
  // Of the same communicator; it may have formed the groups, and counts what is sent inside them. Null: the group's
  // own.
  std::shared_ptr<replica::TeamPool> pool = nullptr;
  Answer answer = Answer::now;
};

class AsyncGroup {
 public:
  // Every rank calls with the same groups, a number for each rank, and the same shares, the samples of each rank in a
  // step of everybody's. A rank that only serves (ranvier/server.h) only calls this. `comm` and `server` outlive this.
  AsyncGroup(Communicator& comm, ParameterServer& server, const std::vector<int>& groups,
             const std::vector<std::size_t>& shares, AsyncGroupOptions options = {});
  // Whom it asks of that: of each rank its group, below 0 where it is in none or alone.
  static std::vector<int> colors(const std::vector<int>& groups);

  // The next samples of this rank; what it is part of has `count` > 0 for all ranks of a group or for none, but where
  // few are left, a rank's own part may be empty while its group still goes on.
  struct Part {
    bool goes_on = false;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::uint64_t done = 0;  // by all workers
  };
  Part begin(std::uint64_t stop_at);
  // The gradient of begin()'s part (zeros for an empty one) is averaged over the group and pushed.
  void exchange(std::span<float> gradient, double rate, std::span<float> parameters);
  // In place of these two, for ranks that load their samples themselves. What all of the group bring to its next
  // exchange: 0 samples of those who rest, who wait here for what the others do; 0 in all once nobody has any.
  struct Brought {
    double samples = 0;
    double rate = 0;        // of learning, the mean by samples
    bool all_know = false;  // who has any, their velocities
  };
  enum class Knows : bool { nothing, velocity };
  Brought bring(double samples, double rate, Knows knows = Knows::nothing);
  // Where all know theirs: the mean of these, each counting as `share`, is what the group pushed last. Nothing for that
  // of who has no samples.
  void set_velocity(std::span<const float> velocity, double share);
  // `update`, for which this rank has brought so many of `all` samples, is averaged by these and pushed at their rate,
  // as `share` of a step of everybody's. It has its optimizer's momentum already, whose factor is that of the options
  // where groups are to look ahead.
  void exchange(std::span<float> update, double samples, const Brought& all, double share, std::span<float> parameters);
  // Waits for what is under way, all of a group at once: so do begin() and bring() themselves where nothing goes on.
  // What servers hold then is to be pulled.
  void settle();
  // Of the codec by which its gradients are averaged, as Exchange has them.
  std::uint64_t plain_buckets() const { return average_ ? average_->plain_buckets() : 0; }
  std::size_t state_bytes() const { return average_ ? average_->state_bytes() : 0; }
  // What is owed to this rank's gradients, which have the given memory, as part of one of them: by that codec, and by
  // the servers' to what this rank pushed for its group. Empty where nothing is. A run that is resumed by a checkpoint
  // pays it with its first gradients.
  std::vector<float> owed(std::span<float> gradient) const;
  // The same for the group that comes next in this run: nobody else owes it any more.
  std::vector<float> take_owed(std::span<float> gradient);
  void owe(std::vector<float> owed) { owed_ = std::move(owed); }

 private:
  bool leads() const { return comm_ == nullptr || comm_->rank() == 0; }
  void share_momentum();
  void average(std::span<float> gradient, double samples, double of_group);
  enum class Has : std::uint8_t { gradient, momentum };
  void look_ahead(std::span<float> values, Has has);
  void pay(std::span<float> gradient);
  void push(std::span<const float> gradient, const ParameterServer::Push& push, std::span<float> parameters);
  void start(std::span<const float> gradient, const ParameterServer::Push& push, std::span<float> parameters);
  void finish(std::span<float> parameters);

  ParameterServer& server_;
  const GroupMomentum momentum_;
  const std::shared_ptr<replica::TeamPool> pool_;
  Communicator* const comm_;           // of its members; null: alone
  std::unique_ptr<Exchange> average_;  // of its gradients, by the servers' codec
  std::vector<float> owed_;            // by an earlier one
  // Of this rank's gradients in its group's sum, as its share of the samples is: what codecs owe is of that, and not of
  // what the last step happened to have.
  double weight_ = 1;
  bool pushes_gradients_ = false;  // and not what momentum has made of them already
  std::vector<std::byte> told_;    // by the servers
  const Answer answer_;
  std::vector<float> pulled_;            // by Answer::next_step: what servers hold …
  bool is_under_way_ = false;            // … once the push that is has been answered
  std::size_t pushes_ahead_ = 0;         // of each group, that momentum looks ahead to
  std::vector<Rank> members_;            // of it
  std::size_t total_ = 0;                // samples of a step of everybody's
  std::vector<std::size_t> of_members_;  // samples of each of them in such a step …
  std::size_t group_ = 0;                // … and of all of them
  std::size_t place_ = 0;                // of this rank among them
  Part part_;
  std::uint64_t group_count_ = 0;  // of the step under way
};

}  // namespace ranvier
