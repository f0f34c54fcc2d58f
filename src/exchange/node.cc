// Codes between nodes only: the ranks of a node average their floats, the first of them averages what comes of it with
// the first ranks of the other nodes, by a codec, and tells its node. A node's line then carries one code of the bucket
// and not one for each of its ranks, there are as many encoders as nodes, and what codes lose is lost for the node.
//
// Buckets go through the three stages one behind the other and overtake each other in the first: the second begins in
// their order, since all nodes have to begin the same ones alike, and the third is messages, which need none. Mikami
// et al., "Massively Distributed SGD" (arXiv:1811.05233) and Jia et al., "Highly Scalable Deep Learning Training System
// with Mixed-Precision" (arXiv:1807.11205) do the same with floats.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "exchange/residuals.h"
#include "exchange/staged_averaging.h"
#include "kernel/vectors.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

class NodeAveraging;

Error ended_early() {
  return {ErrorKind::usage, "the exchange between nodes was destroyed while a bucket was under way; wait for it first"};
}

// Of the first rank of a node: buckets that wait for their turn between nodes.
class Turns {
 public:
  void expect(std::shared_ptr<NodeAveraging> bucket);
  // Something has changed: those at the front that are ready begin, on this thread.
  void go_on();
  // The first problem is that of all buckets from now on: other nodes would take a later one for this one.
  void fail(std::exception_ptr problem);
  // While true, and until leave(), the communicators are there.
  bool enter();
  void leave();
  // Nothing begins any more, and what waits fails.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  std::deque<std::shared_ptr<NodeAveraging>> waiting_;
  bool somebody_goes_on_ = false;
  std::size_t inside_ = 0;
  bool closed_ = false;
  std::exception_ptr problem_;
};

class NodeAveraging final : public StagedAveraging {
 public:
  NodeAveraging(const NodeLinks& links, Exchange* between, std::shared_ptr<Turns> turns, const Bucket& bucket,
                std::uint64_t number)
      : inside_(links.inside),
        across_(links.across),
        between_(between),
        turns_(std::move(turns)),
        share_(static_cast<float>(links.share)),
        values_(bucket.values),
        tensors_(bucket.tensors.begin(), bucket.tensors.end()),
        priority_(bucket.priority),
        number_(number) {}

  void start() {
    if (between_ != nullptr) turns_->expect(std::static_pointer_cast<NodeAveraging>(shared_from_this()));
    if (inside_ == nullptr) return reduced(nullptr);
    const bool is_first = inside_->rank() == 0;
    const TypedSpan all = values_;
    try {
      go_on_behind(inside_->start({.collective = Collective::reduce,
                                   .input = all,
                                   .output = is_first ? all : TypedSpan(nullptr, 0, all.dtype),
                                   .op = ReduceOp::average,
                                   .root = 0,
                                   .priority = priority_}),
                   [this](std::exception_ptr problem) { reduced(std::move(problem)); });
    } catch (...) {
      reduced(std::current_exception());
    }
  }

  bool is_ready() const { return ready_.load(); }
  // In its turn.
  void meet_other_nodes() {
    if (problem_inside_) return fail(problem_inside_);
    try {
      if (share_ != 1) kernel::multiply(values_.data(), share_, values_.data(), values_.size());
      auto averaging = between_->start({.values = values_, .tensors = tensors_, .priority = priority_});
      drive([averaging] { averaging->wait(); });
      averaging->on_done([this, self = shared_from_this(), averaging = averaging.get()] { tell(averaging->error()); });
    } catch (...) {
      fail(std::current_exception());
    }
  }
  using StagedAveraging::finish;

 private:
  template <class Then>
  void go_on_behind(Work work, Then then) {
    drive([work]() mutable { work.wait(); });
    work.on_done([self = shared_from_this(), work, then] { then(work.error()); });
  }

  void reduced(std::exception_ptr problem) {
    if (between_ == nullptr) return problem ? fail(std::move(problem)) : hear();
    problem_inside_ = std::move(problem);
    ready_ = true;
    turns_->go_on();
  }

  void hear() {
    try {
      go_on_behind(inside_->start_recv(values_, 0, number_),
                   [this](const std::exception_ptr& problem) { end(problem); });
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void tell(const std::exception_ptr& problem) {
    if (problem || inside_ == nullptr) return end(problem);
    if (!turns_->enter()) return finish(std::make_exception_ptr(ended_early()));
    try {
      std::vector<Work> telling;
      for (Rank member = 1; member < inside_->world(); ++member)
        telling.push_back(inside_->start_send(values_, member, number_));
      left_ = telling.size();
      drive([telling]() mutable { Work::wait_all(telling); });
      for (Work& each : telling)
        each.on_done([this, self = shared_from_this(), each] {
          if (auto lost = each.error()) return fail(std::move(lost));
          if (left_.fetch_sub(1) == 1) finish(nullptr);
        });
      turns_->leave();
    } catch (...) {
      turns_->leave();
      fail(std::current_exception());
    }
  }

  void end(const std::exception_ptr& problem) { problem ? fail(problem) : finish(nullptr); }

  // What one communicator fails with nobody hears of in the other one, where operations would go on, in this memory,
  // and others would wait for this rank.
  void fail(std::exception_ptr problem) {
    turns_->fail(problem);
    std::string why = "an average between nodes has failed";
    try {
      std::rethrow_exception(problem);
    } catch (const std::exception& error) {
      why = error.what();
    } catch (...) {
    }
    if (turns_->enter()) {
      for (Communicator* each : {inside_, across_})
        if (each != nullptr) each->abort(why);
      turns_->leave();
    }
    finish(std::move(problem));
    turns_->go_on();
  }

  Communicator* const inside_;  // null: alone in its node
  Communicator* const across_;  // null: not the first of its node
  Exchange* const between_;     // null: not the first of its node
  const std::shared_ptr<Turns> turns_;
  const float share_;
  const std::span<float> values_;
  const std::vector<Tensor> tensors_;
  const int priority_;
  const std::uint64_t number_;

  std::exception_ptr problem_inside_;  // before ready_
  std::atomic<bool> ready_ = false;
  std::atomic<std::size_t> left_ = 0;  // to be told
};

void Turns::expect(std::shared_ptr<NodeAveraging> bucket) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(bucket));
}

void Turns::go_on() {
  std::unique_lock lock(mutex_);
  if (somebody_goes_on_) return;
  somebody_goes_on_ = true;
  while (!waiting_.empty() && waiting_.front()->is_ready()) {
    const auto next = std::move(waiting_.front());
    waiting_.pop_front();
    const auto problem = problem_;
    lock.unlock();
    if (problem)
      next->finish(problem);
    else
      next->meet_other_nodes();
    lock.lock();
  }
  somebody_goes_on_ = false;
  left_.notify_all();
}

void Turns::fail(std::exception_ptr problem) {
  const std::lock_guard lock(mutex_);
  if (!problem_) problem_ = std::move(problem);
}

bool Turns::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  ++inside_;
  return true;
}

void Turns::leave() {
  const std::lock_guard lock(mutex_);
  --inside_;
  left_.notify_all();
}

void Turns::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  if (!problem_) problem_ = std::make_exception_ptr(ended_early());
  left_.wait(lock, [&] { return !somebody_goes_on_ && inside_ == 0; });
  const auto waiting = std::exchange(waiting_, {});
  lock.unlock();
  for (const auto& each : waiting) each->finish(problem_);
}

class NodeExchange final : public Exchange {
 public:
  NodeExchange(std::string spec, const NodeLinks& links, std::unique_ptr<Exchange> between)
      : spec_(std::move(spec)),
        momentum_(plan_exchange(spec_).momentum()),
        links_(links),
        between_(std::move(between)) {}
  ~NodeExchange() override { turns_->close(); }

  std::string_view spec() const override { return spec_; }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto averaging = std::make_shared<NodeAveraging>(links_, between_.get(), turns_, bucket, number_++);
    averaging->start();
    return averaging;
  }
  std::uint64_t plain_buckets() const override { return between_ ? between_->plain_buckets() : 0; }
  std::size_t state_bytes() const override { return between_ ? between_->state_bytes() : 0; }
  // Behind it, where exchanges over all ranks do not look, whose first ranks these are.
  std::vector<std::byte> save(const Bucket& bucket) override {
    auto kept = between_ ? between_->save(bucket) : std::vector<std::byte>{};
    if (kept.empty()) return kept;
    const Layout layout{.nodes = links_.layout};
    Residuals::append(kept, std::as_bytes(std::span(&layout, 1)));
    return kept;
  }
  // Of other nodes, some of those that speak now have something and some have not, and would count apart: all begin
  // anew.
  void restore(const Bucket& bucket, ConstBytes kept) override {
    if (!between_ || kept.empty()) return;
    Layout layout{.magic = 0};
    if (kept.size() > sizeof layout) std::memcpy(&layout, kept.data() + kept.size() - sizeof layout, sizeof layout);
    if (layout.magic == Layout{}.magic) {
      if (layout.nodes != links_.layout) return;
      return between_->restore(bucket, Residuals::without(kept, sizeof layout));
    }
    between_->restore(bucket, kept);
  }
  double momentum() const override { return momentum_; }

 private:
  struct Layout {
    std::uint64_t magic = 0x6f6e5f7265696e76;
    std::uint64_t nodes = 0;
  };

  const std::string spec_;
  const double momentum_;
  const NodeLinks links_;
  const std::unique_ptr<Exchange> between_;
  const std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> node_exchange(std::string spec, const NodeLinks& links) {
  auto between = links.across != nullptr ? make_exchange(spec, *links.across) : nullptr;
  return std::make_unique<NodeExchange>(std::move(spec), links, std::move(between));
}

}  // namespace ranvier
