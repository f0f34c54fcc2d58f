// One lane between two ranks: a bidirectional call of gRPC whose messages are pieces of a stream of bytes.
//
// Payloads are gRPC's ByteBuffers, which hold references to memory: what is large is sent from where the caller has it,
// and what arrives is read where gRPC has put it. Protobuf, whose bytes are std::strings, has no part in it.
// Included by grpc.cc alone: gRPC's headers take seconds to compile.
#pragma once

#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"

namespace ranvier::transport {

// What the driver of the completion queue finds on it.
struct GrpcEvent {
  virtual void happened(bool ok) = 0;

 protected:
  ~GrpcEvent() = default;
};

class GrpcStream {
 public:
  static constexpr std::size_t slice = 512 << 10;       // of one send
  static constexpr std::size_t copied = 16 << 10;       // up to here a copy costs less than to keep account of a loan
  static constexpr std::size_t most_message = 2 << 20;  // and no peer may send more in one

  GrpcStream(Rank self, Rank peer) : self_(self), peer_(peer) {}
  GrpcStream(const GrpcStream&) = delete;
  GrpcStream& operator=(const GrpcStream&) = delete;

  // One of these, before anything is sent: the call that this rank makes, or the one that it was made.
  void call(std::unique_ptr<grpc::ClientContext> context, std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call) {
    client_context_ = std::move(context);
    client_ = std::move(call);
    reader_ = client_.get();
    writer_ = client_.get();
    ++expected_;
    client_->StartCall(&opened_);
  }
  void accept(std::unique_ptr<grpc::GenericServerContext> context,
              std::unique_ptr<grpc::GenericServerAsyncReaderWriter> call) {
    server_context_ = std::move(context);
    server_ = std::move(call);
    reader_ = server_.get();
    writer_ = server_.get();
    ++expected_;
    server_->SendInitialMetadata(&opened_);
  }
  bool has_call() const { return reader_ != nullptr; }
  bool open() const { return open_; }
  bool refused() const { return refused_; }
  const grpc::Status& status() const { return status_; }

  std::size_t try_send(ConstBytes head, ConstBytes body) {
    if (pending_bytes_ >= most_pending) return 0;
    body = body.first(std::min(body.size(), slice));
    if (body.size() <= copied) {
      if (head.size() + body.size() == 0) return 0;
      grpc::Slice whole(head.size() + body.size());
      auto* const to = const_cast<std::uint8_t*>(whole.begin());
      if (!head.empty()) std::memcpy(to, head.data(), head.size());
      if (!body.empty()) std::memcpy(to + head.size(), body.data(), body.size());
      pending_.push_back(std::move(whole));
    } else {
      if (!head.empty()) pending_.emplace_back(head.data(), head.size());
      loans_.fetch_add(1, std::memory_order_relaxed);
      pending_.emplace_back(const_cast<std::byte*>(body.data()), body.size(), &give_back, &loans_);
    }
    pending_bytes_ += head.size() + body.size();
    write();
    return head.size() + body.size();
  }

  bool sent() const { return loans_.load(std::memory_order_acquire) == 0; }
  bool flushed() const { return !writing_ && pending_.empty(); }

  // What has arrived. A rest of some bytes is joined with what follows it, and so is a view that was not enough.
  ConstBytes view() {
    if (begin_ < front_size() && arrived_.size() > 1 &&
        (front_size() - begin_ < little || (unused_ && begin_ == shown_)))
      join();
    unused_ = true;
    shown_ = begin_;
    if (arrived_.empty()) return {};
    return {reinterpret_cast<const std::byte*>(arrived_.front().begin()) + begin_, front_size() - begin_};
  }

  void release(std::size_t bytes) {
    if (bytes > front_size() - std::min(begin_, front_size()))
      throw Error(ErrorKind::usage, fmt::format("rank {} released {} B of {} that came from rank {}", self_, bytes,
                                                front_size() - begin_, peer_));
    if (bytes == 0) return;
    unused_ = false;
    begin_ += bytes;
    unread_ -= bytes;
    if (begin_ == front_size()) {
      arrived_.pop_front();
      begin_ = 0;
    }
    read();
  }

  // The other side sends no more.
  bool ended() const { return ended_; }

  // Says that nothing more will be sent, once all has been. The client's side waits for the server's answer.
  void hang_up() {
    if (!open_ || closing_ || !flushed()) return;
    closing_ = true;
    ++expected_;
    if (client_)
      client_->WritesDone(&half_closed_);
    else
      server_->Finish(grpc::Status::OK, &closed_);
  }
  // Whether the other side has had all that was sent, as far as one can know.
  bool hung_up() const { return !open_ || (closing_ && expected_ == 0) || broken_; }

  // Nothing is asked for from here on: gRPC ends a process that begins an operation on a queue that is shut down.
  void break_off() {
    broken_off_ = true;
    pending_.clear();  // which gives back what it had borrowed
    pending_bytes_ = 0;
    if (client_context_) client_context_->TryCancel();
    if (server_context_ && has_call()) server_context_->TryCancel();
  }
  int expected() const { return expected_; }  // events that are still to come

 private:
  static constexpr std::size_t most_pending = 1 << 20;
  static constexpr std::size_t most_unread = 1 << 20;  // beyond it the peer waits, by HTTP/2's flow control
  static constexpr std::size_t little = 64;
  static_assert(most_pending + slice + most_pending / 2 <= most_message);

  // A member function as an event.
  template <void (GrpcStream::*then)(bool)>
  struct Event final : GrpcEvent {
    explicit Event(GrpcStream& stream) : stream_(stream) {}
    void happened(bool ok) override {
      --stream_.expected_;
      if (!stream_.broken_off_) (stream_.*then)(ok);
    }
    GrpcStream& stream_;
  };

  static void give_back(void* loans) { static_cast<std::atomic<int>*>(loans)->fetch_sub(1, std::memory_order_release); }

  std::size_t front_size() const { return arrived_.empty() ? 0 : arrived_.front().size(); }

  void on_opened(bool ok) {
    if (!ok) return refuse();
    if (client_ && !started_) {  // the call has left; it stands when the other side has said so
      started_ = true;
      ++expected_;
      client_->ReadInitialMetadata(&opened_);
      return;
    }
    open_ = true;
    read();
    write();
  }

  void refuse() {
    broken_ = true;
    if (!client_) return void(refused_ = true);
    ++expected_;
    client_->Finish(&status_, &closed_);
  }

  void write() {
    if (!open_ || writing_ || closing_ || broken_ || pending_.empty()) return;
    writing_ = true;
    pending_bytes_ = 0;
    const grpc::ByteBuffer message(pending_.data(), pending_.size());
    pending_.clear();
    ++expected_;
    writer_->Write(message, &written_);
  }
  void on_written(bool ok) {
    writing_ = false;
    if (!ok) broken_ = true;
    write();
  }

  void read() {
    if (!open_ || reading_ || ended_ || unread_ >= most_unread) return;
    reading_ = true;
    ++expected_;
    reader_->Read(&message_, &read_);
  }
  void on_read(bool ok) {
    reading_ = false;
    if (!ok) {
      ended_ = true;
      return;
    }
    std::vector<grpc::Slice> slices;
    if (message_.Dump(&slices).ok())
      for (grpc::Slice& each : slices) {
        unread_ += each.size();
        if (each.size() > 0) arrived_.push_back(std::move(each));
      }
    message_.Clear();
    read();
  }

  void on_half_closed(bool) {
    ++expected_;
    client_->Finish(&status_, &closed_);
  }
  void on_closed(bool) {
    if (broken_) refused_ = true;
  }

  // The rest of the first piece and the beginning of the second as one.
  void join() {
    const grpc::Slice first = std::move(arrived_.front());
    arrived_.pop_front();
    const std::size_t rest = first.size() - begin_;
    const std::size_t more = rest < little ? std::min<std::size_t>(front_size(), 4096) : front_size();
    grpc::Slice both(rest + more);
    auto* const to = const_cast<std::uint8_t*>(both.begin());
    std::memcpy(to, first.begin() + begin_, rest);
    std::memcpy(to + rest, arrived_.front().begin(), more);
    if (more == front_size())
      arrived_.pop_front();
    else
      arrived_.front() = arrived_.front().sub(more, front_size());
    arrived_.push_front(std::move(both));
    begin_ = 0;
  }

  const Rank self_, peer_;
  std::unique_ptr<grpc::ClientContext> client_context_;
  std::unique_ptr<grpc::GenericServerContext> server_context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> client_;
  std::unique_ptr<grpc::GenericServerAsyncReaderWriter> server_;
  grpc::internal::AsyncReaderInterface<grpc::ByteBuffer>* reader_ = nullptr;
  grpc::internal::AsyncWriterInterface<grpc::ByteBuffer>* writer_ = nullptr;
  grpc::Status status_;
  bool started_ = false, open_ = false, refused_ = false, broken_ = false, closing_ = false, ended_ = false;
  bool broken_off_ = false;
  int expected_ = 0;

  std::vector<grpc::Slice> pending_;  // behind the write that is under way
  std::size_t pending_bytes_ = 0;
  bool writing_ = false;
  std::atomic<int> loans_ = 0;  // bodies of callers that gRPC still reads; it gives back from threads of its own

  grpc::ByteBuffer message_;
  std::deque<grpc::Slice> arrived_;
  std::size_t begin_ = 0;   // what was used of the first
  std::size_t unread_ = 0;  // in all of them
  std::size_t shown_ = 0;   // `begin_` of the last view, …
  bool unused_ = false;     // … of which nothing was used since
  bool reading_ = false;

  Event<&GrpcStream::on_opened> opened_{*this};
  Event<&GrpcStream::on_written> written_{*this};
  Event<&GrpcStream::on_read> read_{*this};
  Event<&GrpcStream::on_half_closed> half_closed_{*this};
  Event<&GrpcStream::on_closed> closed_{*this};
};

}  // namespace ranvier::transport
