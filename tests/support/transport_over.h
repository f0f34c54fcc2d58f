// What another transport does, for those that change a part of it.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "ranvier/transport.h"

namespace ranvier::support {

class TransportOver : public Transport {
 public:
  explicit TransportOver(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Rank rank() const override { return inner_->rank(); }
  Rank world() const override { return inner_->world(); }
  TransportTraits traits() const override { return inner_->traits(); }
  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    return inner_->try_send(to, lane, head, body);
  }
  bool sent(Rank to, Lane lane) override { return inner_->sent(to, lane); }
  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override { return inner_->try_recv(from, lane, into); }
  void release(Rank from, Lane lane, std::size_t bytes) override { inner_->release(from, lane, bytes); }
  void wait(std::chrono::nanoseconds limit) override { inner_->wait(limit); }
  bool expect(std::span<const Expected> all) override { return inner_->expect(all); }
  void interrupt() override { inner_->interrupt(); }
  void cancel() override { inner_->cancel(); }
  void close() override { inner_->close(); }

 private:
  const std::unique_ptr<Transport> inner_;
};

}  // namespace ranvier::support
