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
#include "transport/receive_buffers.h"

namespace ranvier::transport {
namespace {

using Transfer = TaggedMessages::Transfer;

constexpr std::size_t slice = 256 << 10;
constexpr std::size_t most_head = 64;  // see Transport::try_send
// Messages of a lane that were sent and are not over. Enough that the library finds the next one when one is over.
constexpr std::size_t most_under_way = 4;
constexpr std::size_t little = 4 << 10;  // moved to the front of a buffer where the next message would not fit behind
// For what sent() promised to deliver, when its sender leaves.
constexpr auto farewell = std::chrono::seconds(1);
// How long nobody may have called before the helper calls for messages that have not left.
constexpr auto pause = std::chrono::microseconds(200);

static_assert(ReceiveBuffers::bytes >= little + slice + most_head);

// Memory that a library may still use although its transport has gone. Kept for good: there is little of it, and the
// process has failed.
void keep_for_good(ReceiveBuffers::Buffer buffer) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<ReceiveBuffers::Buffer>;  // never destroyed
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(buffer));
}

class TaggedTransport final : public Transport {
 public:
  TaggedTransport(const TaggedWorld& world, std::unique_ptr<TaggedMessages> messages)
      : world_(world),
        messages_(std::move(messages)),
        lanes_(static_cast<std::size_t>(world.world) * lane_count),
        buffers_(lanes_.size() * (most_under_way + 1)),
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
            .slice_bytes = slice,
            .buffered_bytes = slice,
            .ranks_per_core = world_.ranks_per_core,
            .polls_before_yield = world_.ranks_per_core > 1 ? 0 : 20,
            .polls_before_wait = world_.ranks_per_core > 1 ? 100 : 400};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(to, lane);
    if (!messages_->may_be_called()) return 0;
    ++calls_;
    settle(channel);
    body = body.first(std::min(body.size(), slice));
    const std::size_t bytes = head.size() + body.size();
    if (channel.sends == most_under_way || bytes == 0) return 0;
    ReceiveBuffers::Buffer buffer = buffers_.take();
    if (!head.empty()) std::memcpy(buffer.get(), head.data(), head.size());
    if (!body.empty()) std::memcpy(buffer.get() + head.size(), body.data(), body.size());
    const Transfer transfer = messages_->send(to, lane, ConstBytes(buffer.get(), bytes));
    idle_ = 0;
    if (transfer == TaggedMessages::none) {
      buffers_.give(std::move(buffer));
      return bytes;
    }
    channel.sending[channel.sends++] = {transfer, std::move(buffer)};
    if (unsent_++ == 0 && helper_sleeps_) unsent_changed_.notify_all();
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
    ++calls_;
    if (messages_->may_be_called()) fetch(channel, from, lane);
    return {channel.buffer.get() + channel.begin, channel.end - channel.begin};
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(from, lane);
    if (bytes > channel.end - channel.begin) [[unlikely]]
      throw Error(ErrorKind::usage,
                  fmt::format("rank {} released {} B of {} that {} lane {} from rank {} has", world_.rank, bytes,
                              channel.end - channel.begin, world_.name, lane, from));
    channel.begin += bytes;
    if (channel.begin == channel.end && channel.receiving == TaggedMessages::none && channel.buffer) empty(channel);
  }

  void wait(std::chrono::nanoseconds limit) override {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_ || !messages_->may_sleep()) return;
    }
    messages_->sleep(limit, interrupt_, idle_);
    clear_event(interrupt_);
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
    ReceiveBuffers::Buffer buffer = {};
  };
  struct Channel {
    std::array<Send, most_under_way> sending;  // the oldest first
    std::size_t sends = 0;

    ReceiveBuffers::Buffer buffer;  // none while nothing is here
    std::size_t begin = 0, end = 0;
    std::size_t incoming = 0;  // bytes behind `end` that are being received
    Transfer receiving = TaggedMessages::none;
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

  // Takes back the memory of sends that are over.
  void settle(Channel& channel) {
    std::exception_ptr problem;
    std::size_t left = 0;
    for (std::size_t i = 0; i < channel.sends; ++i) {
      Send& send = channel.sending[i];
      bool over = true;
      try {
        over = messages_->over(send.transfer);
      } catch (const Error&) {  // it failed, and its number means nothing any more
        problem = std::current_exception();
      }
      if (over) {
        buffers_.give(std::move(send.buffer));
        --unsent_;
        idle_ = 0;
      } else if (left++ != i) {
        channel.sending[left - 1] = std::move(send);
      }
    }
    channel.sends = left;
    if (problem) std::rethrow_exception(problem);
  }

  // Receives the next message behind what is here, if there is one and room for it.
  void fetch(Channel& channel, Rank from, Lane lane) {
    if (channel.receiving == TaggedMessages::none) {
      const auto size = messages_->arrived(from, lane);
      if (!size) return;
      if (*size > slice + most_head)
        throw Error(ErrorKind::mismatch,
                    fmt::format("rank {} sent a {} message of {} B where no more than {} fit; run the same ranvier on "
                                "all ranks",
                                from, world_.name, *size, slice + most_head),
                    from);
      if (!channel.buffer) channel.buffer = buffers_.take();
      const std::size_t here = channel.end - channel.begin;
      if (ReceiveBuffers::bytes - channel.end < *size) {
        if (here > little) return;
        std::memmove(channel.buffer.get(), channel.buffer.get() + channel.begin, here);
        channel.begin = 0;
        channel.end = here;
      }
      channel.incoming = *size;
      channel.receiving = messages_->receive(from, lane, Bytes(channel.buffer.get() + channel.end, *size));
    }
    // One that fails is forgotten before that is told.
    if (const Transfer receiving = std::exchange(channel.receiving, TaggedMessages::none);
        receiving != TaggedMessages::none && !messages_->over(receiving)) {
      channel.receiving = receiving;
      return;
    }
    channel.end += std::exchange(channel.incoming, 0);
    idle_ = 0;
  }

  void empty(Channel& channel) {
    channel.begin = channel.end = 0;
    buffers_.give(std::move(channel.buffer));
  }

  // Moves what was sent while nobody calls: its receiver may wait for it, and its sender compute.
  void help(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      helper_sleeps_ = true;
      unsent_changed_.wait(lock, stop, [&] { return unsent_ > 0; });
      helper_sleeps_ = false;
      const std::uint64_t before = calls_;
      lock.unlock();
      std::this_thread::sleep_for(pause);
      lock.lock();
      if (calls_ != before || cancelled_ || !messages_->may_be_called()) continue;
      try {
        for (Channel& channel : lanes_)
          if (channel.sends > 0) settle(channel);
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
    const bool callable = messages_->may_be_called();
    for (Channel& channel : lanes_) {
      for (std::size_t i = 0; i < channel.sends; ++i) {
        Send& send = channel.sending[i];
        bool over = false;
        try {
          over = callable && messages_->over(send.transfer);
          while (!over && callable && std::chrono::steady_clock::now() < until) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            over = messages_->over(send.transfer);
          }
        } catch (const Error&) {
          over = true;  // it failed, and is forgotten
        }
        if (!over && !(callable && messages_->abandon(send.transfer))) keep_for_good(std::move(send.buffer));
      }
      channel.sends = 0;
      if (channel.receiving != TaggedMessages::none && !(callable && messages_->abandon(channel.receiving)))
        keep_for_good(std::move(channel.buffer));
      channel.receiving = TaggedMessages::none;
    }
  }

  const TaggedWorld world_;
  const std::unique_ptr<TaggedMessages> messages_;
  std::vector<Channel> lanes_;  // by peer, then lane
  ReceiveBuffers buffers_;
  Fd interrupt_ = event_descriptor();
  std::atomic<int> idle_ = 0;  // waits since something moved
  bool cancelled_ = false;

  std::mutex mutex_;  // whoever drives, or the helper
  std::condition_variable_any unsent_changed_;
  std::size_t unsent_ = 0;   // messages that have not left
  std::uint64_t calls_ = 0;  // of whoever drives
  bool helper_sleeps_ = false;
  std::exception_ptr problem_;  // that ended the helper
  std::jthread helper_;         // begins last and ends first
};

}  // namespace

std::unique_ptr<Transport> tagged_transport(const TaggedWorld& world, std::unique_ptr<TaggedMessages> messages) {
  return std::make_unique<TaggedTransport>(world, std::move(messages));
}

}  // namespace ranvier::transport
