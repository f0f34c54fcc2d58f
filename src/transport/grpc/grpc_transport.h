// The transport over calls that stand. Whoever drives the engine also drives gRPC: it polls gRPC's completion queue,
// whose polling is what reads and writes the sockets. Where nobody does, a keeper goes on with what was accepted: its
// sender may compute, or meet others, while its receiver waits for it. Included by grpc.cc alone.
#pragma once

#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/server.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/grpc/grpc_stream.h"

namespace ranvier::transport {

// One port of this process, the calls that come in there and those that go out. Outlives its streams.
class GrpcQueue {
 public:
  explicit GrpcQueue(std::unique_ptr<grpc::ServerCompletionQueue> queue) : queue_(std::move(queue)) {}
  grpc::ServerCompletionQueue& queue() { return *queue_; }

  // Handles what has happened, waiting for the first event until `limit` has passed. Whether anything had. Some events
  // at most: strangers' calls bring new ones without end, and whoever drives has deadlines to keep.
  bool drive(std::chrono::nanoseconds limit) {
    auto deadline = std::chrono::system_clock::now() + std::chrono::ceil<std::chrono::microseconds>(limit);
    for (int events = 0; events < most_at_once; ++events) {
      void* event = nullptr;
      bool ok = false;
      if (queue_->AsyncNext(&event, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) return events > 0;
      static_cast<GrpcEvent*>(event)->happened(ok);
      deadline = {};  // long past: what is here already, and no more
    }
    return true;
  }

  // Says that the server is about to shut down: gRPC ends a process that asks a server for a call after that.
  void close() { closing_ = true; }
  bool closing() const { return closing_; }

  // Ends a present or the next drive(). From any thread.
  void interrupt() { alarm_.ring(*queue_); }

  // After the server has gone and every call was broken off: hears the last of them.
  void drain() {
    queue_->Shutdown();
    void* event = nullptr;
    bool ok = false;
    while (queue_->Next(&event, &ok)) static_cast<GrpcEvent*>(event)->happened(ok);
  }

 private:
  static constexpr int most_at_once = 64;

  class Interrupt final : public GrpcEvent {
   public:
    void ring(grpc::CompletionQueue& queue) {
      const std::lock_guard lock(mutex_);
      if (std::exchange(set_, true)) return;
      alarm_ = std::make_unique<grpc::Alarm>();
      alarm_->Set(&queue, std::chrono::system_clock::time_point(), this);
    }
    void happened(bool) override {
      const std::lock_guard lock(mutex_);
      set_ = false;
    }

   private:
    std::mutex mutex_;
    bool set_ = false;
    std::unique_ptr<grpc::Alarm> alarm_;
  };

  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  bool closing_ = false;
  Interrupt alarm_;
};

// What a transport needs to live: everything that was made while it connected.
struct GrpcWorld {
  Rank rank = 0;
  Rank world = 1;
  int ranks_per_core = 1;
  std::unique_ptr<grpc::Server> server = nullptr;
  std::unique_ptr<GrpcQueue> queue = nullptr;
  std::shared_ptr<void> listener = nullptr;               // what is still asked of the server
  std::vector<std::unique_ptr<GrpcStream>> streams = {};  // by peer, then lane; empty for this rank itself

  // Ends all of it. Bodies that gRPC does not give back in time are kept readable by leaving the stream be.
  void close(std::chrono::steady_clock::time_point until) {
    if (!server) return;
    for (const auto& stream : streams)
      if (stream && stream->has_call()) stream->break_off();
    queue->close();
    server->Shutdown(std::chrono::system_clock::now());
    queue->drain();
    for (auto& stream : streams) {
      while (stream && !stream->sent() && std::chrono::steady_clock::now() < until) usleep(100);
      if (stream && !stream->sent()) static_cast<void>(stream.release());
    }
    streams.clear();
    listener.reset();
    server.reset();
  }
};

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(GrpcWorld world) : world_(std::move(world)) {
    try {
      keeper_ = start_thread("what grpc sends", [this] { keep(); });
    } catch (...) {
      world_.close(std::chrono::steady_clock::now() + farewell);  // gRPC does not end what is under way by itself
      throw;
    }
  }
  ~GrpcTransport() override { cancel(); }

  Rank rank() const override { return world_.rank; }
  Rank world() const override { return world_.world; }

  // A poll asks the kernel, so there is little to gain by many of them.
  TransportTraits traits() const override {
    return {.name = "grpc",
            .slice_bytes = GrpcStream::slice,
            .buffered_bytes = GrpcStream::copied,
            .ranks_per_core = world_.ranks_per_core,
            .polls_before_yield = world_.ranks_per_core > 1 ? 0 : 10,
            .polls_before_wait = 60};
  }

  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    GrpcStream& stream = this->stream(to, lane);
    std::size_t accepted = stream.try_send(head, body);
    if (accepted == 0) {
      world_.queue->drive({});
      accepted = stream.try_send(head, body);
    }
    if (!stream.flushed() && !std::exchange(unflushed_, true)) changed_.notify_one();
    return accepted;
  }

  bool sent(Rank to, Lane lane) override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    const GrpcStream& stream = this->stream(to, lane);
    if (stream.sent()) return true;
    world_.queue->drive({});
    return stream.sent();
  }

  ConstBytes try_recv(Rank from, Lane lane, Bytes) override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    GrpcStream& stream = this->stream(from, lane);
    ConstBytes view = stream.view();
    if (!view.empty()) return view;
    world_.queue->drive({});
    view = stream.view();
    if (view.empty() && stream.ended())
      throw Error(ErrorKind::peer_lost, fmt::format("rank {} closed its grpc call to rank {}", from, world_.rank),
                  from);
    return view;
  }

  void release(Rank from, Lane lane, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    stream(from, lane).release(bytes);
  }

  void wait(std::chrono::nanoseconds limit) override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (!cancelled_) world_.queue->drive(std::min<std::chrono::nanoseconds>(limit, std::chrono::hours(1)));
  }

  void interrupt() override {
    const std::lock_guard lock(closing_);
    if (world_.server) world_.queue->interrupt();
  }

  void cancel() override {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(cancelled_, true)) return;
    }
    changed_.notify_one();
    keeper_.join();
    say_goodbye();
    const std::lock_guard lock(closing_);
    world_.close(std::chrono::steady_clock::now() + farewell);
  }

 private:
  // For what was promised to be sent, and for peers to say that they have it.
  static constexpr auto farewell = std::chrono::seconds(1);

  GrpcStream& stream(Rank peer, Lane lane) {
    if (cancelled_) [[unlikely]]
      throw Error(ErrorKind::aborted,
                  fmt::format("rank {} used grpc after it was cancelled; make a new communicator", world_.rank));
    const std::size_t index = static_cast<std::size_t>(peer) * lane_count + lane;
    if (lane >= lane_count || index >= world_.streams.size() || !world_.streams[index]) [[unlikely]]
      throw Error(ErrorKind::usage,
                  fmt::format("rank {} of {} has no grpc lane {} to rank {}", world_.rank, world_.world, lane, peer));
    return *world_.streams[index];
  }

  void say_goodbye() {
    const auto until = std::chrono::steady_clock::now() + farewell;
    for (bool all = false; !all && std::chrono::steady_clock::now() < until;) {
      all = true;
      for (const auto& stream : world_.streams) {
        if (!stream) continue;
        stream->hang_up();
        all = all && stream->hung_up();
      }
      if (!all) world_.queue->drive(std::chrono::milliseconds(2));
    }
  }

  void keep() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return cancelled_ || unflushed_; });
      const std::uint64_t before = calls_;
      lock.unlock();
      std::this_thread::sleep_for(patience);
      lock.lock();
      if (cancelled_) return;
      if (calls_ == before) world_.queue->drive({});
      unflushed_ = std::ranges::any_of(world_.streams, [](const auto& each) { return each && !each->flushed(); });
    }
  }

  static constexpr auto patience = std::chrono::microseconds(200);

  GrpcWorld world_;
  std::mutex mutex_;  // whoever drives, or the keeper
  std::condition_variable changed_;
  std::uint64_t calls_ = 0;  // of whoever drives
  bool unflushed_ = false;   // something accepted may not have left
  std::mutex closing_;       // against an interrupt from another thread
  bool cancelled_ = false;
  std::thread keeper_;
};

}  // namespace ranvier::transport
