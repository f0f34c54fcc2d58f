#include "transport/tagged_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "base/thread.h"
#include "ranvier/error.h"
#include "transport/huge_buffers.h"

namespace ranvier::transport {
namespace {

using Transfer = TaggedMessages::Transfer;

constexpr std::size_t most_slice = TaggedWorld::most_slice;
constexpr std::size_t most_head_bytes = 64;  // see Transport::try_send
// Messages of a lane that were sent and are not over, and that are being received: the library finds the next one when
// one is over, and on a slow line its sender has long been told to send it.
constexpr std::size_t most_under_way = 8;
// Half of what a lane takes that its receiver has not begun to take. More than two hosts have in their sockets: the
// proof that something was taken waits behind that.
constexpr std::size_t credit = 2 << 20;
// In front of each message there is room for the head of an answer, or for what is left of the message before.
constexpr std::size_t room = 4 << 10;
constexpr std::size_t buffer_bytes = room + most_slice + most_head_bytes;
// For what sent() promised to deliver, when its sender leaves.
constexpr auto farewell = std::chrono::seconds(1);
// How long nobody may have called before the helper calls for messages that have not left. It looks less often while
// somebody calls: each look takes the core from him, every 200 us a tenth of it.
constexpr auto soonest_look = std::chrono::microseconds(200), latest_look = std::chrono::microseconds(800);

static_assert(most_head_bytes <= room);

// Memory that a library may still use although its transport has gone. Kept for good: there is little of it, and the
// process has failed.
void keep_for_good(std::shared_ptr<HugeBuffers> buffers) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<HugeBuffers>>;  // never destroyed
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(buffers));
}

class TaggedTransport final : public Transport, public AnswersInPlace {
 public:
  TaggedTransport(const TaggedWorld& world, std::unique_ptr<TaggedMessages> messages)
      : world_(world),
        messages_(std::move(messages)),
        lanes_(static_cast<std::size_t>(world.world) * lane_count),
        helper_(start_thread<std::jthread>("what is sent while nobody calls",
                                           [this](const std::stop_token& stop) { help(stop); })) {}
  ~TaggedTransport() override {
    cancel();
    helper_.request_stop();
    unsent_changed_.notify_all();
  }

  Rank rank() const override { return world_.rank; }
  Rank world() const override { return world_.world; }

  TransportTraits traits() const override {
    return {.name = world_.name,
            .slice_bytes = world_.slice_bytes,
            .buffered_bytes = world_.slice_bytes,
            .ranks_per_core = world_.ranks_per_core,
            .polls_before_yield = world_.ranks_per_core > 1 ? 0 : 20,
            .polls_before_wait = world_.ranks_per_core > 1 ? 100 : 400};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(to, lane);
    if (!takes_one(channel)) return 0;
    body = body.first(std::min(body.size(), world_.slice_bytes));
    const std::size_t bytes = head.size() + body.size();
    if (bytes == 0) return 0;
    std::byte* const buffer = buffers_->take();
    std::byte* const message = buffer + room - head.size();
    if (!head.empty()) std::memcpy(message, head.data(), head.size());
    if (!body.empty()) std::memcpy(buffer + room, body.data(), body.size());
    send(channel, to, lane, buffer, ConstBytes(message, bytes));
    return bytes;
  }

  bool sent(Rank to, Lane lane) override {
    const std::lock_guard lock(mutex_);
    channel(to, lane);
    return true;  // try_send copies
  }

  ConstBytes try_recv(Rank from, Lane lane, Bytes) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(from, lane);
    if (messages_->may_be_called()) {
      ++calls_;
      fetch(channel, from, lane);
    }
    return channel.unread();
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(from, lane);
    if (bytes > channel.unread().size()) [[unlikely]]
      throw Error(ErrorKind::usage, fmt::format("rank {} released {} B of {} that {} lane {} from rank {} has",
                                                world_.rank, bytes, channel.unread().size(), world_.name, lane, from));
    channel.begin += bytes;
    if (channel.begin == channel.end && channel.buffer != nullptr) {
      buffers_->give(std::exchange(channel.buffer, nullptr));
      channel.begin = channel.end = 0;
    }
  }

  AnswersInPlace* answers_in_place() override { return this; }

  // Nothing is held up by an answer that is not read: what was sent is not in the peer's memory.
  std::uint32_t unanswered() const override { return 1U << 30; }

  std::size_t try_ask(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    return try_send(to, lane, head, body);
  }

  Bytes answerable(Rank to, Lane lane, ConstBytes body) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(to, lane);
    const ConstBytes unread = channel.unread();
    if (body.empty() || body.size() > std::min(world_.slice_bytes, unread.size()) ||
        body.data() + body.size() != unread.data() + unread.size())
      return {};
    const auto offset = static_cast<std::size_t>(body.data() - channel.buffer);
    if (offset < most_head_bytes || !takes_one(channel)) return {};
    return {channel.buffer + offset, body.size()};
  }

  void answer(Rank to, Lane lane, ConstBytes head, Bytes body) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(to, lane);
    std::byte* const message = body.data() - head.size();
    if (!head.empty()) std::memcpy(message, head.data(), head.size());
    channel.begin = channel.end = 0;
    send(channel, to, lane, std::exchange(channel.buffer, nullptr), ConstBytes(message, head.size() + body.size()));
  }

  void wait(std::chrono::nanoseconds limit) override {
    {
      const std::lock_guard lock(mutex_);
      // What the helper has moved may have brought a message, and its event with it.
      if (cancelled_ || std::exchange(has_helped_, false) || !messages_->may_sleep()) return;
      if (unsent_ > 0) limit = std::min<std::chrono::nanoseconds>(limit, latest_look);  // and moves what was sent
      sleeps_ = true;
    }
    messages_->sleep(limit, interrupt_, idle_);
    clear_event(interrupt_);
    {
      const std::lock_guard lock(mutex_);
      sleeps_ = false;
    }
    ++idle_;
  }

  void interrupt() override { signal_event(interrupt_); }

  VendorCollectives* vendor_collectives() override { return messages_->vendor(); }

  void cancel() override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(cancelled_, true)) return;
    give_up();
  }

 private:
  struct Send {
    Transfer transfer = TaggedMessages::none;
    std::byte* buffer = nullptr;
  };
  struct Receipt {
    Transfer transfer = TaggedMessages::none;  // none: it is here
    std::byte* buffer = nullptr;
    std::size_t bytes = 0;
  };
  struct Channel {
    std::array<Send, most_under_way> sending;  // the oldest first
    std::size_t sends = 0;
    Send proof;               // of what its receiver has taken: its last message that is not over before that
    std::size_t untaken = 0;  // bytes behind it
    std::array<Receipt, most_under_way> coming;  // likewise
    std::size_t receipts = 0;

    std::byte* buffer = nullptr;  // none while nothing is here
    std::size_t begin = 0, end = 0;

    ConstBytes unread() const { return {buffer + begin, end - begin}; }
  };

  Channel& channel(Rank peer, Lane lane) {
    if (cancelled_) [[unlikely]]
      throw Error(ErrorKind::aborted, fmt::format("rank {} used {} after it was cancelled; make a new communicator",
                                                  world_.rank, world_.name));
    if (problem_) [[unlikely]]
      std::rethrow_exception(problem_);
    if (peer < 0 || peer >= world_.world || peer == world_.rank || lane >= lane_count) [[unlikely]]
      throw Error(ErrorKind::usage, fmt::format("rank {} of {} has no {} lane {} to rank {}", world_.rank, world_.world,
                                                world_.name, lane, peer));
    return lanes_[static_cast<std::size_t>(peer) * lane_count + lane];
  }

  // Whether a message may be sent there now.
  bool takes_one(Channel& channel) {
    if (!messages_->may_be_called()) return false;
    ++calls_;
    settle(channel);
    return channel.sends < most_under_way &&
           (channel.untaken < credit || channel.proof.transfer == TaggedMessages::none);
  }

  void send(Channel& channel, Rank to, Lane lane, std::byte* buffer, ConstBytes message) {
    channel.untaken += message.size();
    const bool proves = channel.untaken >= credit && channel.proof.transfer == TaggedMessages::none;
    const Transfer transfer = messages_->send(to, lane, message, proves);
    idle_ = 0;
    if (proves) channel.untaken = 0;
    if (transfer == TaggedMessages::none) return buffers_->give(buffer);
    (proves ? channel.proof : channel.sending[channel.sends++]) = {transfer, buffer};
    if (unsent_++ == 0 && helper_sleeps_) unsent_changed_.notify_all();
  }

  // Takes back the memory of sends that are over. The receiver takes them in order: while the first is not over, none
  // behind it need be asked for.
  void settle(Channel& channel) {
    std::size_t done = 0;
    const auto take_back = [&] {
      for (std::size_t i = 0; i < done; ++i) buffers_->give(channel.sending[i].buffer);
      if (done > 0) drop_first(channel.sending, channel.sends, done);
      unsent_ -= done;
    };
    if (const Send proof = channel.proof; proof.transfer != TaggedMessages::none) {
      channel.proof.transfer = TaggedMessages::none;  // one that failed is forgotten
      bool is_over = true;
      std::exception_ptr failed;
      try {
        is_over = messages_->over(proof.transfer);
      } catch (const Error&) {
        failed = std::current_exception();
      }
      if (is_over) {
        buffers_->give(proof.buffer);
        --unsent_;
        idle_ = 0;
      } else {
        channel.proof = proof;
      }
      if (failed) std::rethrow_exception(failed);
    }
    try {
      while (done < channel.sends && messages_->over(channel.sending[done].transfer)) ++done;
    } catch (const Error&) {  // it failed, and its number means nothing any more
      ++done;
      take_back();
      throw;
    }
    if (done > 0) idle_ = 0;
    take_back();
  }

  template <class T>
  static void drop_first(std::array<T, most_under_way>& all, std::size_t& count, std::size_t dropped) {
    std::move(all.begin() + static_cast<std::ptrdiff_t>(dropped), all.begin() + static_cast<std::ptrdiff_t>(count),
              all.begin());
    count -= dropped;
  }

  // Receives what there is, so that the senders of large messages hear in time that these may come. One that comes
  // within the call, as from a process of this host, is used before the next one pushes it out of the caches.
  void fetch(Channel& channel, Rank from, Lane lane) {
    append(channel);
    if (channel.receipts == 0) {
      if (channel.unread().size() > room || !begin_to_receive(channel, from, lane)) return;
      append(channel);
    }
    try {
      while (channel.receipts > 0 && channel.receipts < most_under_way &&
             channel.coming[channel.receipts - 1].transfer != TaggedMessages::none &&
             begin_to_receive(channel, from, lane)) {
      }
    } catch (const Error&) {  // What came before it counts; it is told when that has been used.
    }
  }

  bool begin_to_receive(Channel& channel, Rank from, Lane lane) {
    const auto size = messages_->arrived(from, lane);
    if (!size) return false;
    if (*size > most_slice + most_head_bytes)
      throw Error(ErrorKind::mismatch,
                  fmt::format("rank {} sent a {} message of {} B where no more than {} fit; run the same ranvier on "
                              "all ranks",
                              from, world_.name, *size, most_slice + most_head_bytes),
                  from);
    Receipt receipt{.buffer = buffers_->take(), .bytes = *size};
    try {
      receipt.transfer = messages_->receive(from, lane, Bytes(receipt.buffer + room, *size));
    } catch (const Error&) {
      // The library has taken the message and lost it: what comes behind is not what follows.
      buffers_->give(receipt.buffer);
      problem_ = std::current_exception();
      throw;
    }
    channel.coming[channel.receipts++] = receipt;
    return true;
  }

  // The next message, if it is here, behind what is left of the one before.
  void append(Channel& channel) {
    const ConstBytes left = channel.unread();
    if (channel.receipts == 0 || left.size() > room) return;
    Receipt& next = channel.coming.front();
    // One that fails is forgotten before that is told.
    const auto [transfer, bytes] =
        std::pair(std::exchange(next.transfer, TaggedMessages::none), std::exchange(next.bytes, 0));
    if (transfer != TaggedMessages::none && !messages_->over(transfer)) {
      next.transfer = transfer;
      next.bytes = bytes;
      return;
    }
    if (!left.empty()) std::memcpy(next.buffer + room - left.size(), left.data(), left.size());
    if (channel.buffer != nullptr) buffers_->give(channel.buffer);
    channel.buffer = next.buffer;
    channel.begin = room - left.size();
    channel.end = room + bytes;
    drop_first(channel.coming, channel.receipts, 1);
    idle_ = 0;
  }

  // Moves what was sent while nobody calls: its receiver may wait for it, and its sender compute.
  void help(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    auto pause = soonest_look;
    while (!stop.stop_requested()) {
      helper_sleeps_ = true;
      unsent_changed_.wait(lock, stop, [&] { return unsent_ > 0; });
      helper_sleeps_ = false;
      const std::uint64_t before = calls_;
      lock.unlock();
      std::this_thread::sleep_for(pause);
      lock.lock();
      const bool driven = calls_ != before;
      pause = driven ? std::min(2 * pause, latest_look) : soonest_look;
      if (driven || sleeps_ || cancelled_ || !messages_->may_be_called()) continue;
      has_helped_ = true;
      try {
        for (Channel& channel : lanes_)
          if (channel.sends > 0 || channel.proof.transfer != TaggedMessages::none) settle(channel);
      } catch (const Error&) {
        problem_ = std::current_exception();  // for whoever drives
        return;
      }
    }
  }

  // What was sent is given the time to leave; then it is given up, and its memory with it where the library does not
  // let go of it.
  void give_up() {
    const auto until = std::chrono::steady_clock::now() + farewell;
    unsent_ = 0;
    bool in_use = false;
    const bool callable = messages_->may_be_called();
    const auto stays = [&](Transfer transfer) {
      if (transfer == TaggedMessages::none) return false;
      try {
        bool over = callable && messages_->over(transfer);
        while (!over && callable && std::chrono::steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::microseconds(20));
          over = messages_->over(transfer);
        }
        return !over && !(callable && messages_->abandon(transfer));
      } catch (const Error&) {
        return false;  // it failed, and is forgotten
      }
    };
    for (Channel& channel : lanes_) {
      in_use |= stays(std::exchange(channel.proof.transfer, TaggedMessages::none));
      for (std::size_t i = 0; i < channel.sends; ++i) in_use |= stays(channel.sending[i].transfer);
      channel.sends = 0;
      for (std::size_t i = 0; i < channel.receipts; ++i) {
        Receipt& receipt = channel.coming[i];
        in_use |= receipt.transfer != TaggedMessages::none && !(callable && messages_->abandon(receipt.transfer));
      }
      channel.receipts = 0;
    }
    if (in_use) keep_for_good(buffers_);
  }

  const TaggedWorld world_;
  const std::unique_ptr<TaggedMessages> messages_;
  std::vector<Channel> lanes_;  // by peer, then lane
  const std::shared_ptr<HugeBuffers> buffers_ = std::make_shared<HugeBuffers>(buffer_bytes);
  Fd interrupt_ = event_descriptor();
  std::atomic<int> idle_ = 0;  // waits since something moved
  bool cancelled_ = false;

  std::mutex mutex_;  // whoever drives, or the helper
  std::condition_variable_any unsent_changed_;
  std::size_t unsent_ = 0;   // messages that have not left
  std::uint64_t calls_ = 0;  // of whoever drives
  bool helper_sleeps_ = false;
  bool has_helped_ = false;     // since whoever drives last waited
  bool sleeps_ = false;         // whoever drives
  std::exception_ptr problem_;  // that ended the helper, or lost a message
  std::jthread helper_;         // begins last and ends first
};

}  // namespace

std::unique_ptr<Transport> tagged_transport(const TaggedWorld& world, std::unique_ptr<TaggedMessages> messages) {
  return std::make_unique<TaggedTransport>(world, std::move(messages));
}

}  // namespace ranvier::transport
