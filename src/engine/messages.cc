#include "engine/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "ranvier/error.h"

namespace ranvier::engine {
namespace {

ConstBytes bytes_of(const ConstTypedSpan& span) { return {static_cast<const std::byte*>(span.data), span.bytes()}; }

// Tags from here on are of messages that ranvier itself sends, codes and sparse gradients: they tell a program nothing.
constexpr std::uint64_t first_own_tag = std::uint64_t{1} << 40;

std::string described(std::string_view call, std::uint64_t bytes, const std::string& other_end, std::uint64_t tag) {
  if (tag >= first_own_tag) return fmt::format("{} of {} B of ranvier's own {}", call, bytes, other_end);
  return fmt::format("{} of {} B {} with tag {}", call, bytes, other_end, tag);
}

}  // namespace

SendOperation::SendOperation(ConstTypedSpan data, Rank to, std::uint64_t tag, Messages& messages, CallLabel label)
    : data_(bytes_of(data)), to_(to), messages_(messages) {
  const auto [calls, history] = messages.history().now();
  header_.calls = calls;
  header_.history = history;
  header_.label = label;
  header_.epoch = messages.epoch();
  header_.dtype = data.dtype;
  header_.tag = tag;
  header_.bytes = data.bytes();
}

void SendOperation::begin() { messages_.post(*this, to_); }

Progress SendOperation::advance(Transport& transport, bool briefly) {
  bool moved = false;
  for (int steps = 1; !head_sent_ || !data_.empty(); ++steps) {
    if (!head_sent_ && !messages_.has_turn(*this, to_)) return Progress::blocked;
    const ConstBytes head = head_sent_ ? ConstBytes() : std::as_bytes(std::span(&header_, 1));
    std::size_t accepted = transport.try_send(to_, message_lane, head, data_);
    if (accepted == 0) return moved ? Progress::moved : Progress::blocked;
    moved = true;
    if (!head_sent_) accepted -= head.size();
    head_sent_ = true;
    data_ = data_.subspan(accepted);
    if (data_.empty()) messages_.end_turn(to_);
    if (briefly || steps == most_steps) return Progress::moved;
  }
  if (transport.sent(to_, message_lane)) return Progress::done;
  return moved ? Progress::moved : Progress::blocked;
}

std::string SendOperation::describe() const {
  return described("send", header_.bytes, "to " + messages_.rank_names()(to_), header_.tag);
}

void RecvOperation::begin() { messages_.post(*this); }

FlightRecorder::Entry SendOperation::entry() const {
  return {.collective = Collective::send, .dtype = header_.dtype, .peer = to_, .bytes = header_.bytes};
}

FlightRecorder::Entry RecvOperation::entry() const {
  return {.collective = Collective::recv, .dtype = data_.dtype, .peer = from_, .bytes = data_.bytes()};
}

Progress RecvOperation::advance(Transport& transport, bool /*briefly*/) {
  const bool moved = !complete_ && messages_.poll_for(transport, *this);
  if (complete_) return Progress::done;
  return moved ? Progress::moved : Progress::blocked;
}

std::string RecvOperation::describe() const {
  return described("recv", data_.bytes(), "from " + (from_ < 0 ? "any rank" : messages_.rank_names()(from_)), tag_);
}

std::optional<Expected> RecvOperation::expects() const {
  const Rank peer = waits_for();
  return peer < 0 ? Expected{} : messages_.rest_of(*this, peer);
}

// Of a message that has not begun only the head is certain: a short one may come first.
Expected Messages::rest_of(const RecvOperation& receive, Rank peer) const {
  const Link& link = links_[static_cast<std::size_t>(peer)];
  const std::size_t arriving = link.head_known ? link.header.bytes - link.offset : 0;
  if (link.head_known && link.receive == &receive) return {peer, message_lane, arriving};
  const std::size_t least = arriving + sizeof(TagHeader);
  return {peer, message_lane, least, least + receive.data_.bytes()};
}

bool Messages::poll_for(Transport& transport, const RecvOperation& receive) {
  const Rank from = receive.waits_for();
  if (from >= 0 && std::exchange(link(from).pass, pass_) == pass_) return false;
  if (hand_out(transport, from)) return true;
  if (from >= 0) return poll(transport, from);
  // A rank that has left may leave the others to send; a rank that died is the control plane's business.
  bool moved = false;
  const Error* lost = nullptr;
  std::size_t open = 0;
  for (Rank peer = 0; peer < transport.world(); ++peer) {
    if (peer == transport.rank()) continue;
    Link& link = this->link(peer);
    if (link.ended) {
      lost = &*link.ended;
      // In the pass in which it ended others may have got their message, and are not to fail with this one.
      if (link.pass == pass_) ++open;
      continue;
    }
    link.pass = pass_;
    ++open;
    try {
      moved |= poll(transport, peer);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::peer_lost) throw;
      link.ended = error;
      moved = true;
    }
  }
  if (open == 0 && lost != nullptr) throw *lost;
  return moved;
}

// What was put aside comes before what is still to be read: it came first.
bool Messages::hand_out(Transport& transport, Rank from_or_any) {
  bool taken = false;
  for (std::size_t i = 0; i < posted_.size();) {
    RecvOperation& receive = *posted_[i];
    const bool may_take = from_or_any < 0 || receive.from_ < 0 || receive.from_ == from_or_any;
    if (may_take && take_aside(transport, receive))
      taken = true;  // it has left posted_
    else
      ++i;
  }
  return taken;
}

bool Messages::poll(Transport& transport, Rank peer) {
  Link& link = this->link(peer);
  bool moved = false;
  int steps = 0;
  for (;;) {
    if (steps++ >= Operation::most_steps) return true;
    if (!link.head_known) {
      const bool wanted = std::any_of(posted_.begin(), posted_.end(), [&](const RecvOperation* receive) {
        return receive->from_ == peer || receive->from_ < 0;
      });
      if (!wanted) return moved;
      ConstBytes view;
      try {
        view = transport.try_recv(peer, message_lane, {});
      } catch (const Error& error) {
        const bool named = std::any_of(posted_.begin(), posted_.end(),
                                       [&](const RecvOperation* receive) { return receive->from_ == peer; });
        if (error.kind() != ErrorKind::peer_lost || named || !moved) throw;
        link.ended = error;  // what was waited for had come before
        return moved;
      }
      if (view.size() < sizeof(TagHeader)) return moved;
      std::memcpy(&link.header, view.data(), sizeof(TagHeader));
      transport.release(peer, message_lane, sizeof(TagHeader));
      link.head_known = true;
      link.offset = 0;
      compare_histories(transport, peer, link.header);
      link.receive = claim(transport, peer, link.header);
      if (link.receive == nullptr) put_aside(transport, peer, link.header);
      moved = true;
    }
    std::byte* memory =
        link.receive != nullptr ? static_cast<std::byte*>(link.receive->data_.data) : link.aside.back().data.get();
    while (link.offset < link.header.bytes) {
      if (steps++ >= Operation::most_steps) return true;
      const std::size_t wanted = link.header.bytes - link.offset;
      const ConstBytes view = transport.try_recv(peer, message_lane, {memory + link.offset, wanted});
      if (view.empty()) return moved;
      const std::size_t taken = std::min(wanted, view.size());
      if (view.data() != memory + link.offset) {
        std::memcpy(memory + link.offset, view.data(), taken);
        transport.release(peer, message_lane, taken);
      }
      link.offset += taken;
      moved = true;
    }
    link.head_known = false;
    // A receive for what was just put aside may have been posted meanwhile; it comes before the next message.
    if (link.receive == nullptr) return true;
    complete(*link.receive, peer, link.header.bytes);
    link.receive = nullptr;
  }
}

void Messages::put_aside(Transport& transport, Rank peer, const TagHeader& header) {
  try {
    if (!aside_limit_.take(header.bytes)) throw std::bad_alloc();
    link(peer).aside.push_back({header, std::make_unique_for_overwrite<std::byte[]>(header.bytes)});
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::mismatch,
                fmt::format("{} sent {} B with tag {} before what {} waits for, which has no recv for it and no memory "
                            "to keep it: post its recv before waiting for later ones, or receive in the order of the "
                            "sends",
                            names_.rank(peer), header.bytes, header.tag, names_.rank(transport.rank())),
                peer);
  }
}

// Gives the oldest message of its tag that was put aside to a receive; whether there was one.
bool Messages::take_aside(Transport& transport, RecvOperation& receive) {
  for (Rank peer = 0; peer < transport.world(); ++peer) {
    if (receive.from_ >= 0 && receive.from_ != peer) continue;
    Link& link = this->link(peer);
    // The last one may still be arriving.
    const std::size_t ready = link.aside.size() - (link.head_known && link.receive == nullptr ? 1 : 0);
    const auto end = link.aside.begin() + static_cast<std::ptrdiff_t>(ready);
    const auto found =
        std::find_if(link.aside.begin(), end, [&](const Aside& aside) { return aside.header.tag == receive.tag_; });
    if (found == end) continue;
    check(transport, receive, peer, found->header);
    const std::size_t bytes = found->header.bytes;
    if (bytes > 0) std::memcpy(receive.data_.data, found->data.get(), bytes);
    link.aside.erase(found);
    aside_limit_.give_back(bytes);
    std::erase(posted_, &receive);
    complete(receive, peer, bytes);
    return true;
  }
  return false;
}

RecvOperation* Messages::claim(Transport& transport, Rank peer, const TagHeader& header) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const RecvOperation* receive) {
    return (receive->from_ == peer || receive->from_ < 0) && receive->tag_ == header.tag;
  });
  if (found == posted_.end()) return nullptr;
  RecvOperation* receive = *found;
  check(transport, *receive, peer, header);
  posted_.erase(found);
  receive->source_ = peer;
  return receive;
}

void Messages::check(Transport& transport, const RecvOperation& receive, Rank peer, const TagHeader& header) const {
  const CallLabel expected = receive.label_;
  const bool same_element =
      expected.element == header.label.element || expected.element == 0 || header.label.element == 0;
  if (header.epoch == epoch_ && header.collective == Collective::send && header.dtype == receive.data_.dtype &&
      same_element &&
      (header.bytes == receive.data_.bytes() || (receive.may_be_shorter_ && header.bytes < receive.data_.bytes())))
    return;
  throw Error(
      ErrorKind::mismatch,
      fmt::format("{} expects {}{} B of {} from {} with tag {}, and {} sent {} B of {}{}{}; make both sides "
                  "agree",
                  names_.rank(transport.rank()), receive.may_be_shorter_ ? "at most " : "", receive.data_.bytes(),
                  name_of(receive.data_.dtype), names_.rank(peer), receive.tag_, names_.rank(peer), header.bytes,
                  name_of(header.dtype), label_difference(transport.rank(), expected, peer, header.label, names_),
                  header.epoch == epoch_
                      ? ""
                      : fmt::format(", {} in epoch {} and {} in epoch {}", names_.rank(transport.rank()), epoch_,
                                    names_.rank(peer), header.epoch)),
      peer);
}

// Messages have no place among the collectives: what is compared are the calls that both ranks have made.
void Messages::compare_histories(Transport& transport, Rank peer, const TagHeader& header) {
  const auto verdict = history_.compare(header.calls, header.history);
  if (verdict == CallHistory::Verdict::unknown) return;
  if (verdict == CallHistory::Verdict::alike) return history_.found_alike(peer, header.calls);
  const Error error = history_.divergence(transport.rank(), peer, {.count = header.calls, .digest = header.history},
                                          history_.alike(peer), last_calls_of_(peer));
  throw Error(error.kind(),
              fmt::format("a message from {} with tag {} shows it: {}", names_.rank(peer), header.tag, error.what()),
              peer);
}

void Messages::complete(RecvOperation& receive, Rank source, std::size_t bytes) {
  receive.source_ = source;
  receive.received_bytes_ = bytes;
  receive.bytes_to_receive = bytes;
  receive.complete_ = true;
}

}  // namespace ranvier::engine
