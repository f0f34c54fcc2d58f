// Links that messages share, as fluids: at any moment each message flows at its max-min fair rate, what is left when
// nobody can get more without somebody who has no more getting less (D. Bertsekas, R. Gallager: Data Networks (1992),
// section 6.5). TCP on one bottleneck is near it; per-flow queues in switches are it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::plan {

// How often a flow crosses a link. More than once in a folded world, where one link stands for many.
struct Crossing {
  std::uint32_t link;
  double times;
};

// A link, and how much it passes at once after a rest (LinkSpeed::burst_bytes), as token buckets shape: tc-tbf(8).
struct FluidLink {
  double bytes_per_ns = 0;
  double burst_bytes = 0;
};

class FluidNetwork {
 public:
  // `routes` by channel; one message at a time flows on a channel. All links have rested. `senders` by channel, where
  // the messages of one sender leave in turn: those that began later get what the earlier ones leave (a FIFO queue at
  // its interface, which does not wait for a message that is held up elsewhere); none: they share like all others.
  FluidNetwork(std::vector<FluidLink> links, std::vector<std::vector<Crossing>> routes,
               std::vector<std::uint32_t> senders = {});

  void start(std::uint32_t channel, double bytes);
  // Where flows share a link, each gets so much of it in proportion to the others: as of a FIFO queue, who has more in
  // it. 1 until it is told.
  void weigh(std::uint32_t channel, double weight);
  // What is left of the message on that channel never arrives; nothing if none flows.
  void stop(std::uint32_t channel);
  bool flows() const { return !active_.empty(); }
  // Until the first message has left entirely, or a link has used up what it had saved, if nothing else starts before.
  double until_next();
  // Lets time pass, at most until_next() while anything flows; the channels whose messages have left are appended to
  // `done`.
  void advance(double ns, std::vector<std::uint32_t>& done);
  // Crossings of links whose share was looked for, again and again: nearly all of the time that a simulation takes
  // where messages do not keep step.
  std::size_t shared_crossings() const { return shared_crossings_; }
  // By link: all that it has carried.
  const std::vector<double>& carried() const { return carried_; }

 private:
  // What a link has saved up.
  struct Bucket {
    std::uint32_t link;
    double bytes;
    bool open;  // there is enough to matter, or it is being used up
  };

  // What a link has for each unit of its flows' weights, or had.
  struct Level {
    double rate;
    std::uint32_t link;
  };

  // Of a link: a channel that flows through it, and how often.
  struct Flow {
    std::uint32_t channel;
    double times;
  };

  // When a message will have left at the rate that it has.
  struct End {
    double at;
    std::uint32_t channel;
    std::uint64_t version;
    bool operator>(const End& other) const { return at > other.at; }
  };

  void share();
  bool share_nearby();
  void share_in_turn();
  void serve_alone(std::vector<std::uint32_t>& channels);
  double room_beside(std::uint32_t link) const;
  bool take(std::uint32_t channel);
  bool take_unfair(std::uint32_t link);
  bool is_active(std::uint32_t channel) const;
  void set_rate(std::uint32_t channel, double rate);
  void end_at(std::uint32_t channel, double at);
  void drop_end();
  void leave(std::span<const std::uint32_t> channels);
  void reach();
  void share_among(const std::vector<std::uint32_t>& channels);
  void fill(double ns);

  std::vector<FluidLink> links_;
  std::vector<double> capacity_;  // at the moment
  std::vector<double> flow_;      // through each link of a bucket, at the moment
  std::vector<Bucket> buckets_;
  std::vector<std::vector<Crossing>> routes_;
  std::vector<std::uint32_t> senders_;
  std::vector<double> carried_;
  std::vector<std::uint32_t> active_;
  // By channel:
  std::vector<double> left_;  // of its message, at the time since which it has its rate
  std::vector<std::uint64_t> begun_;
  std::vector<double> since_;
  std::vector<std::size_t> place_;  // in `active_`
  std::vector<std::uint64_t> version_;
  std::vector<std::uint32_t> bottleneck_;  // the link that decides its rate
  std::uint64_t starts_ = 0;
  double now_ = 0;
  std::vector<End> ends_;  // a heap; those of another version are no more
  std::vector<double> rate_;
  std::vector<double> weight_;
  std::size_t shared_crossings_ = 0;
  // Of share(), kept to spare their making.
  std::vector<double> shared_;  // rates to be
  std::vector<std::uint32_t> looked_;
  std::vector<double> room_;
  std::vector<double> demand_;
  std::vector<std::uint32_t> users_;  // by link: of those that are served, how many
  std::vector<std::uint32_t> used_;
  std::vector<Level> open_;                          // of them, those that still decide: a heap
  std::vector<std::uint32_t> settling_;              // channels that a level decides
  std::vector<std::vector<std::uint32_t>> on_link_;  // of those that share, channels
  std::vector<std::vector<Flow>> flows_;             // by link, all that flows through it
  std::vector<std::uint32_t> left_links_;            // those that messages have just left
  std::vector<std::uint32_t> changed_;               // links of what has come or gone since rates were found
  std::vector<std::uint32_t> reached_;               // channels whose rates may have changed with them
  std::vector<std::uint32_t> link_reached_;          // the last time that reach() came to it
  std::vector<std::uint32_t> channel_reached_;
  std::uint32_t reach_ = 0;
  std::vector<std::vector<std::uint32_t>> queues_;  // by sender: its messages in the order in which they began
  std::vector<std::uint32_t> turn_;                 // the first of each that are not blocked, or the second, …
};

}  // namespace ranvier::plan
