// send and recv between two ranks, matched by tag. A message is a header and its bytes on the message lane of a link;
// what arrives before its receive is posted, and stands in the way of one that is, is put aside.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/aside_limit.h"
#include "engine/call_history.h"
#include "engine/message_header.h"
#include "engine/operation.h"
#include "ranvier/error.h"

namespace ranvier::engine {

class Messages;

class SendOperation final : public Operation {
 public:
  SendOperation(ConstTypedSpan data, Rank to, std::uint64_t tag, Messages& messages, CallLabel label);
  void begin() override;
  Progress advance(Transport&, bool briefly) override;
  std::string describe() const override;
  Rank waits_for() const override { return to_; }
  std::optional<Expected> expects() const override { return std::nullopt; }
  FlightRecorder::Entry entry() const override;

 private:
  ConstBytes data_;  // what has not been accepted yet
  Rank to_;
  Messages& messages_;
  TagHeader header_;
  bool head_sent_ = false;
};

class RecvOperation final : public Operation {
 public:
  // `may_be_shorter`: `data` is the most that comes, else exactly what comes.
  RecvOperation(TypedSpan data, Rank from_or_any, std::uint64_t tag, bool may_be_shorter, Messages& messages,
                CallLabel label)
      : data_(data),
        from_(from_or_any),
        tag_(tag),
        may_be_shorter_(may_be_shorter),
        label_(label),
        messages_(messages) {}
  void begin() override;
  Progress advance(Transport&, bool briefly) override;
  std::string describe() const override;
  Rank waits_for() const override { return from_ >= 0 ? from_ : source_; }
  std::optional<Expected> expects() const override;
  Rank source() const override { return source_; }
  std::size_t received_bytes() const override { return received_bytes_; }
  FlightRecorder::Entry entry() const override;

 private:
  friend class Messages;
  TypedSpan data_;
  Rank from_;  // -1: any
  std::uint64_t tag_;
  bool may_be_shorter_;
  CallLabel label_;
  Messages& messages_;
  Rank source_ = -1;  // once its message has begun
  std::size_t received_bytes_ = 0;
  bool complete_ = false;
};

// What both sides of all links remember between operations. Driver only.
class Messages {
 public:
  // `names` outlive this. `last_calls_of`: what another rank says of its last calls, see Engine.
  Messages(Rank world, Epoch epoch, CallHistory& history, const Names& names,
           std::function<std::string(Rank)> last_calls_of)
      : epoch_(epoch),
        history_(history),
        names_(names),
        last_calls_of_(std::move(last_calls_of)),
        links_(static_cast<std::size_t>(world)) {}

  Epoch epoch() const { return epoch_; }
  const CallHistory& history() const { return history_; }
  const RankNames& rank_names() const { return names_.rank; }

  // Sends of one link go one after the other, in the order in which they are posted.
  void post(SendOperation& send, Rank to) { link(to).sends.push_back(&send); }
  bool has_turn(const SendOperation& send, Rank to) { return link(to).sends.front() == &send; }
  void end_turn(Rank to) { link(to).sends.pop_front(); }

  // Receives are matched in the order in which they are posted; until then nothing is matched to them.
  void post(RecvOperation& receive) { posted_.push_back(&receive); }
  // Of the next message for a receive and what comes before it, what is not there yet.
  Expected rest_of(const RecvOperation&, Rank peer) const;
  // Gives out and reads what a receive may be waiting for, unless another one has asked its peer since begin_pass(): of
  // many receives, one call of the kernel is enough. Whether anything moved. Throws Error{mismatch} for a message whose
  // size or type is not what its receive expects, and for one that shows that its sender has called other collectives
  // than this rank; and what the transport throws, to a receive from any rank only where no other rank can send.
  bool poll_for(Transport&, const RecvOperation&);
  void begin_pass() { ++pass_; }

 private:
  struct Aside {
    TagHeader header;
    std::unique_ptr<std::byte[]> data;
  };
  struct Link {
    std::deque<SendOperation*> sends;
    std::uint64_t pass = 0;      // the last one that read it
    std::optional<Error> ended;  // nothing more comes, and why
    bool head_known = false;
    TagHeader header;                  // of the message that is arriving, …
    std::size_t offset = 0;            // … how much of it has arrived, …
    RecvOperation* receive = nullptr;  // … and where it goes; null: aside.back()
    std::deque<Aside> aside;
  };

  Link& link(Rank peer) { return links_[static_cast<std::size_t>(peer)]; }
  // Reads what has arrived from `peer` as long as somebody waits for it; whether anything moved.
  bool poll(Transport&, Rank peer);
  // Gives what was put aside to posted receives, oldest first: to all, or to those from this rank and from any. Whether
  // there was anything for them.
  bool hand_out(Transport&, Rank from_or_any);
  bool take_aside(Transport&, RecvOperation&);
  // Room for a message that nobody waits for, as far as there is memory: its sender would wait for ever, if it is the
  // last one to be received. Throws Error{mismatch}.
  void put_aside(Transport&, Rank peer, const TagHeader&);
  RecvOperation* claim(Transport&, Rank peer, const TagHeader&);
  void check(Transport&, const RecvOperation&, Rank peer, const TagHeader&) const;
  void compare_histories(Transport&, Rank peer, const TagHeader&);
  void complete(RecvOperation&, Rank source, std::size_t bytes);

  Epoch epoch_;
  CallHistory& history_;
  const Names& names_;
  const std::function<std::string(Rank)> last_calls_of_;
  std::vector<Link> links_;
  std::uint64_t pass_ = 1;
  std::deque<RecvOperation*> posted_;  // not yet matched, oldest first
  AsideLimit aside_limit_;
};

}  // namespace ranvier::engine
