// How a bucket of gradients becomes its average over all ranks, the same bit for bit on every one of them.
//
//   auto exchange = ranvier::make_exchange("int4", comm);
//   auto averaging = exchange->start({.values = gradients, .tensors = shapes});   // returns at once
//   …
//   averaging->wait();                                                            // gradients hold the average
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/codec.h"
#include "ranvier/communicator.h"

namespace ranvier {

// What a bucket is made of. What an exchange remembers belongs to tensors, by their ids, and follows them into other
// buckets.
struct Tensor {
  std::uint64_t id = 0;
  std::size_t rows = 1;  // the first dimension
  std::size_t columns = 1;
  std::size_t size() const { return rows * columns; }
};

struct Bucket {
  std::span<float> values = {};
  // In the order of their values. None: one tensor that is known by its address and size, so its memory has to stay.
  std::span<const Tensor> tensors = {};
  // Of its collectives, see Request. Messages have none: what coded_exchange and the second factors of
  // low_rank_exchange send goes in its order.
  int priority = 0;
};

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
  // whichever thread finishes it, in the middle of what others wait for. What `then` throws goes no further than
  // stderr.
  virtual void on_done(std::function<void()> then) = 0;
  // Once done: whether values from this one on, up to the end of its slice (of 4 MiB), went plain. The same on all
  // ranks.
  virtual bool went_plain(std::size_t) const { return false; }
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual std::string_view spec() const = 0;
  // All ranks start the same buckets in the same order. The memory of `bucket` lives, and nobody else touches it, until
  // the exchange is done. A bucket is done before it is started again.
  virtual std::shared_ptr<Averaging> start(const Bucket& bucket) = 0;
  std::shared_ptr<Averaging> start(std::span<float> values) { return start(Bucket{.values = values}); }

  // How many buckets (of coded_exchange: slices of 4 MiB) went plain because a value was NaN, infinite or beyond 2^50:
  // such values reach everybody as they are, and what was held back stays held back.
  virtual std::uint64_t plain_buckets() const { return 0; }
  // Bytes kept from step to step.
  virtual std::size_t state_bytes() const { return 0; }
  // What is kept of a bucket, for a checkpoint: bytes for this rank. restore() takes it, before the bucket is first
  // started, also on an exchange of another spec or in another world: a residual is what is owed, whatever the codec
  // and whoever the others are. All ranks restore what was saved at once; where the world has changed, ranks that were
  // not there before have nothing to restore, and all but what is owed begins anew. That it has is seen by its size: of
  // a world of the same size all ranks restore, or none. Throws Error{config} for bytes that are not of this bucket,
  // are not all, or are too many: before anything of them is taken. Empty where nothing is kept, and then there is
  // nothing to restore.
  virtual std::vector<std::byte> save(const Bucket&) { return {}; }
  virtual void restore(const Bucket&, ConstBytes) {}
  // Not 0: the average contains momentum by this factor, and the optimizer must add none.
  virtual double momentum() const { return 0; }
};

// What of the bytes that save() gave is owed to the bucket's gradients; empty where nothing is.
std::vector<float> owed_in(ConstBytes kept);

// `comm` outlives what these return.

// The floats as they are.
std::unique_ptr<Exchange> dense_exchange(Communicator& comm);
// The floats as they are, by an all_reduce that tolerates loss (Request::tolerates_loss), with error feedback. For
// gradients, never for parameters. `ranks`: Request::may_differ.
enum class RanksEnd : std::uint8_t { alike, apart };
std::unique_ptr<Exchange> lossy_exchange(Communicator& comm, RanksEnd ranks = RanksEnd::alike);
// Codes that can be added: encoded once, all-reduced as codes, decoded once. Throws Error{usage} for other codecs.
std::unique_ptr<Exchange> summable_exchange(Communicator& comm, std::unique_ptr<Codec> codec);
// Any codec: scatter, reduce, gather. Each rank owns a part of the bucket; it decodes and sums in f32 what all send it,
// and encodes the sum once. A rank sends each part but its own, and its own sum to everybody: 2 (W - 1) / W codes of
// the bucket. Two encodings lie between a gradient and the average, whatever W is. Or by all_gather, where the codec's
// way() says so: W - 1 codes of the bucket in one round, and one encoding.
std::unique_ptr<Exchange> coded_exchange(Communicator& comm, std::unique_ptr<Codec> codec);

// The same for callers who keep what is held back themselves, and wait: ranvier.hook. Slices are shorter where codes
// are long, so that also of a single bucket one slice is encoded while another one travels.
struct CodedTools;
class CodedAverages {
 public:
  explicit CodedAverages(std::shared_ptr<const Codec> codec);
  struct Outcome {
    bool went_plain = false;  // a slice at least
    std::uint64_t bytes_sent = 0;
  };
  // In place, by all ranks of `comm` with the same `number`, another one for each bucket, from which what is random
  // follows; `step` and `pieces` as in CodecKey. By all_gather where the codec's way() says all_gather. Buckets go one
  // after the other, and may lie in different communicators.
  Outcome average(Communicator& comm, std::span<float> values, CodecState state, std::uint64_t number,
                  std::uint64_t step, std::span<const TensorPiece> pieces);
  // Of how many values the slices of a bucket of `count` are; the last one may have fewer.
  std::size_t slice_size(std::size_t count) const;

 private:
  const std::shared_ptr<CodedTools> tools_;
};

// Where several ranks share a node: they average their floats, the first of them averages that by the spec's exchange
// with the first ones of other nodes, and tells its node. A bucket that fails aborts both communicators.
struct NodeLinks {
  Communicator* inside = nullptr;  // of this rank's node, whose first rank is 0 in it; null where a node has one rank
  Communicator* across = nullptr;  // of the first ranks; null on the others
  double share = 1;                // how many ranks this node has, where 1 is the mean of all nodes
  std::uint64_t layout = 0;        // a number of which ranks are on which node, the same on all ranks
};
std::unique_ptr<Exchange> node_exchange(std::string spec, const NodeLinks& links);

// PowerSGD: each matrix M of a bucket, with its residual, as P Q^T of a rank; P = M Q is averaged and made orthonormal,
// Q = M^T P is averaged, and what P Q^T lacks of M is the residual. Q, made orthonormal, is where the next step begins.
// With `alternating` (ACP-SGD) a step averages one of the factors only, in turn. Tensors of which factors would be more
// than a third take a lower rank, and where even one column is too much they go as they are. `factors`, whose codes can
// be added, codes what is averaged. Vogels, Karimireddy and Jaggi, "PowerSGD", NeurIPS 2019 (arXiv:1905.13727); Zhang,
// Zhang, Shi, Chu and Li, "Evaluation and Optimization of Gradient Compression for Distributed Deep Learning", ICDCS
// 2023 (arXiv:2306.08881).
struct LowRankOptions {
  std::size_t rank = 4;
  bool alternating = false;
};
std::unique_ptr<Exchange> low_rank_exchange(Communicator& comm, std::string spec, const LowRankOptions& options,
                                            std::unique_ptr<Codec> factors);

// DeMo: see demo.h. `kept` coefficients of each chunk of at most `chunk` x `chunk` values.
struct DemoOptions {
  std::size_t kept = 32;
  std::size_t chunk = 64;
  double decay = 0.999;  // of momentum, a step
  bool sign = true;      // of what came; else itself
};

// An exchange by its spec: "none", a codec's, "powersgd:4", "thc:8" or "switchml". All ranks call, with the same spec:
// Error{mismatch} names a rank that has another one. Throws Error{usage} naming the wrong part and the nearest right
// one.
std::unique_ptr<Exchange> make_exchange(std::string_view spec, Communicator& comm);
// What a spec asks for: for those who carry it out themselves, over something that is no Communicator.
struct ExchangePlan {
  std::unique_ptr<Codec> codec = nullptr;  // of the values, or with low_rank of the factors; null: floats as they are
  std::optional<LowRankOptions> low_rank = {};
  unsigned grid_bits = 0;     // of SharedGrid (shared_grid.h); 0: there is none
  bool shared_scale = false;  // SharedScale (shared_scale.h)
  std::optional<DemoOptions> demo = {};
  // Exchange::momentum() of it.
  double momentum() const { return demo ? demo->decay : codec ? codec->momentum() : 0; }
  // Whether `codec` can code what one rank sends to another, and keeps no more than a residual for it.
  bool codes_messages() const {
    return codec && !low_rank && momentum() == 0 && !codec->of_differences() && !codec->of_normalized();
  }
};
// Throws what make_exchange throws for a wrong spec.
ExchangePlan plan_exchange(std::string_view spec);
// Throws the Error{usage} that make_exchange would throw, before there is a communicator.
void check_exchange(std::string_view spec);

}  // namespace ranvier
