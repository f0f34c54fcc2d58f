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
#include <deque>
#include <mutex>
#include <utility>

#include "kernel/vectors.h"
#include "ranvier/exchange.h"

namespace ranvier {
namespace {

class NodeAveraging;

// Of the first rank of a node: buckets that wait for their turn between nodes.
class Turns {
 public:
  void expect(std::shared_ptr<NodeAveraging> bucket);
  // Something has changed: those at the front that are ready begin, on this thread.
  void go_on();

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<NodeAveraging>> waiting_;
  bool somebody_goes_on_ = false;
};

class NodeAveraging final : public Averaging, public std::enable_shared_from_this<NodeAveraging> {
 public:
  NodeAveraging(Communicator* inside, Exchange* between, std::shared_ptr<Turns> turns, float share,
                const Bucket& bucket, std::uint64_t number)
      : inside_(inside),
        between_(between),
        turns_(std::move(turns)),
        share_(share),
        values_(bucket.values),
        tensors_(bucket.tensors.begin(), bucket.tensors.end()),
        priority_(bucket.priority),
        number_(number) {}

  void start() {
    if (between_ != nullptr) turns_->expect(shared_from_this());
    if (inside_ == nullptr) return reduced(nullptr);
    const bool is_first = inside_->rank() == 0;
    const TypedSpan all = values_;
    go_on_with(inside_->start({.collective = Collective::reduce,
                               .input = all,
                               .output = is_first ? all : TypedSpan(nullptr, 0, all.dtype),
                               .op = ReduceOp::average,
                               .root = 0,
                               .priority = priority_}),
               [this](std::exception_ptr problem) { reduced(std::move(problem)); });
  }

  bool is_ready() const { return ready_.load(); }
  // In its turn.
  void meet_other_nodes() {
    if (problem_inside_) return finish(problem_inside_);
    try {
      if (share_ != 1) kernel::multiply(values_.data(), share_, values_.data(), values_.size());
      auto averaging = between_->start({.values = values_, .tensors = tensors_, .priority = priority_});
      drive([averaging] { averaging->wait(); });
      averaging->on_done([this, self = shared_from_this(), averaging = averaging.get()] { tell(averaging->error()); });
    } catch (...) {
      finish(std::current_exception());
    }
  }

  // Whoever waits drives the stage that is under way; between two of them another thread computes.
  void wait() override {
    std::unique_lock lock(mutex_);
    for (std::uint64_t seen = 0;;) {
      changed_.wait(lock, [&] { return done_ || stage_ != seen; });
      if (done_) break;
      seen = stage_;
      const auto driven = drive_;
      lock.unlock();
      try {
        driven();
      } catch (...) {  // what was to come then hears of it
      }
      lock.lock();
    }
    if (problem_) std::rethrow_exception(problem_);
  }
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  std::exception_ptr error() const override {
    const std::lock_guard lock(mutex_);
    return problem_;
  }
  void on_done(std::function<void()> then) override {
    {
      const std::lock_guard lock(mutex_);
      if (!done_) return callbacks_.push_back(std::move(then));
    }
    then();
  }

 private:
  void drive(std::function<void()> body) {
    {
      const std::lock_guard lock(mutex_);
      drive_ = std::move(body);
      ++stage_;
    }
    changed_.notify_all();
  }
  template <class Then>
  void go_on_with(Work work, Then then) {
    drive([work]() mutable { work.wait(); });
    work.on_done([self = shared_from_this(), work, then] { then(work.error()); });
  }

  void reduced(std::exception_ptr problem) {
    if (between_ == nullptr) return problem ? finish(std::move(problem)) : hear();
    problem_inside_ = std::move(problem);
    ready_ = true;
    turns_->go_on();
  }

  void hear() {
    try {
      go_on_with(inside_->start_recv(values_, 0, number_),
                 [this](std::exception_ptr problem) { finish(std::move(problem)); });
    } catch (...) {
      finish(std::current_exception());
    }
  }

  void tell(std::exception_ptr problem) {
    if (problem || inside_ == nullptr) return finish(std::move(problem));
    try {
      std::vector<Work> telling;
      for (Rank member = 1; member < inside_->world(); ++member)
        telling.push_back(inside_->start_send(values_, member, number_));
      left_ = telling.size();
      drive([telling]() mutable {
        for (Work& each : telling) each.wait();
      });
      for (Work& each : telling)
        each.on_done([this, self = shared_from_this(), each] {
          if (const auto lost = each.error()) {
            const std::lock_guard lock(mutex_);
            if (!untold_) untold_ = lost;
          }
          if (left_.fetch_sub(1) == 1) finish(untold_);
        });
    } catch (...) {
      finish(std::current_exception());
    }
  }

  void finish(std::exception_ptr problem) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      problem_ = std::move(problem);
      done_ = true;
      drive_ = nullptr;
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (const auto& callback : callbacks) callback();
  }

  Communicator* const inside_;  // null: alone in its node
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

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> drive_;
  std::uint64_t stage_ = 0;
  bool done_ = false;
  std::exception_ptr problem_;
  std::exception_ptr untold_;
  std::vector<std::function<void()>> callbacks_;
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
    lock.unlock();
    next->meet_other_nodes();
    lock.lock();
  }
  somebody_goes_on_ = false;
}

class NodeExchange final : public Exchange {
 public:
  NodeExchange(std::string spec, Communicator* inside, std::unique_ptr<Exchange> between, double share)
      : spec_(std::move(spec)),
        momentum_(plan_exchange(spec_).momentum()),
        inside_(inside),
        between_(std::move(between)),
        share_(static_cast<float>(share)) {}

  std::string_view spec() const override { return spec_; }
  std::shared_ptr<Averaging> start(const Bucket& bucket) override {
    auto averaging = std::make_shared<NodeAveraging>(inside_, between_.get(), turns_, share_, bucket, number_++);
    averaging->start();
    return averaging;
  }
  std::uint64_t plain_buckets() const override { return between_ ? between_->plain_buckets() : 0; }
  std::size_t state_bytes() const override { return between_ ? between_->state_bytes() : 0; }
  std::vector<std::byte> save(const Bucket& bucket) override {
    return between_ ? between_->save(bucket) : std::vector<std::byte>{};
  }
  void restore(const Bucket& bucket, ConstBytes kept) override {
    if (between_ && !kept.empty()) between_->restore(bucket, kept);
  }
  double momentum() const override { return momentum_; }

 private:
  const std::string spec_;
  const double momentum_;
  Communicator* const inside_;
  const std::unique_ptr<Exchange> between_;
  const float share_;
  const std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();
  std::uint64_t number_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> node_exchange(std::string spec, Communicator* inside, std::unique_ptr<Exchange> between,
                                        double share) {
  return std::make_unique<NodeExchange>(std::move(spec), inside, std::move(between), share);
}

}  // namespace ranvier
