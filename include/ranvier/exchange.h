// How a bucket of gradients becomes its average over all ranks, the same bit for bit on every one of them.
//
//   auto exchange = ranvier::make_exchange("bf16", comm);
//   auto averaging = exchange->start(bucket);   // returns at once
//   …
//   averaging->wait();                          // bucket holds the average
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ranvier/codec.h"
#include "ranvier/communicator.h"

namespace ranvier {

// A bucket under way. Dropping it does not stop the exchange.
class Averaging {
 public:
  virtual ~Averaging() = default;
  // Waits until the bucket holds the average, and drives the communicator meanwhile. Throws what the exchange failed
  // with.
  virtual void wait() = 0;
  virtual bool done() const = 0;
  // What it failed with; null while it runs and after success.
  virtual std::exception_ptr error() const = 0;
  // Calls `then` once the bucket holds the average or the exchange has failed: at once if it already has, else from
  // whichever thread finishes it.
  virtual void on_done(std::function<void()> then) = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual std::string_view spec() const = 0;
  // All ranks start the same buckets in the same order. The memory of `bucket` lives, and nobody else touches it, until
  // the exchange is done.
  virtual std::shared_ptr<Averaging> start(std::span<float> bucket) = 0;
};

// `comm` outlives what these return.

// The floats as they are.
std::unique_ptr<Exchange> dense_exchange(Communicator& comm);
// Codes that can be added: encoded once, all-reduced as codes, decoded once. Throws Error{usage} for other codecs.
std::unique_ptr<Exchange> summable_exchange(Communicator& comm, std::unique_ptr<Codec> codec);

// An exchange by its spec: "none" or a codec's. Throws Error{usage} naming the wrong part and the nearest right one.
std::unique_ptr<Exchange> make_exchange(std::string_view spec, Communicator& comm);
// Throws what make_exchange would throw, before there is a communicator.
void check_exchange(std::string_view spec);

}  // namespace ranvier
