#include "ranvier/peer_average.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mix.h"
#include "base/thread.h"
#include "exchange/same_spec.h"
#include "ranvier/error.h"
#include "replica/coded_pair.h"
#include "replica/peer_requests.h"
#include "replica/requests.h"
#include "replica/sample_desk.h"
#include "sync/peer_draw.h"

namespace ranvier {
namespace {

using namespace replica::peer_requests;
using replica::CodedMessages;
using replica::CodedPair;
using replica::SampleDesk;

}  // namespace

class PeerAverage::Impl {
 public:
  Impl(Communicator& comm, std::span<const float> parameters, std::uint64_t before, std::uint64_t seed,
       const std::string& compress)
      : comm_(comm),
        coding_(make_coding(comm, compress)),
        desk_(comm, comm.world(), {}, before, start_tag),
        bytes_held_(parameters.size_bytes()),
        held_(parameters.begin(), parameters.end()),
        peers_(seed, comm.rank(), comm.world()) {
    if (coding_) {
      agreed_ = held_;
      comm_.broadcast(agreed_, 0);  // who resumes brings a replica of its own
    }
    if (comm_.world() > 1 && serves(comm_.rank()))
      thread_ = start_thread<std::jthread>("averages with peers", [this] { serve(); });
  }
  ~Impl() {
    // Also for the memory that an average under way still writes to.
    if (!left_ && (thread_.joinable() || averaging_)) comm_.abort("its training ended before its peers' averages");
  }

  SampleStart begin(std::uint64_t stop_at, std::uint64_t most) {
    const SampleStart start = ask_for_samples(stop_at, most);
    if (start.count > 0) start_average();
    return start;
  }

  void start_average() {
    if (comm_.world() == 1 || !asks(comm_.rank())) return;
    const Rank peer = peers_.next();
    const Header header{.kind = Kind::average};
    const ConstBytes told = coding_ ? tell(pair_with(peer)) : std::as_bytes(std::span(held_));
    message_.resize(sizeof header + told.size());
    std::memcpy(message_.data(), &header, sizeof header);
    std::memcpy(message_.data() + sizeof header, told.data(), told.size());
    if (coding_) {
      met_ = &pair_with(peer);
      answer_.resize(coding_->most_bytes(held_.size()));
      averaging_ = comm_.start_recv_at_most({answer_.data(), answer_.size(), DType::u8}, peer, average_tag);
    } else {
      arrived_.resize(held_.size());
      averaging_ = comm_.start_recv(arrived_, peer, average_tag);
    }
    sending_ = comm_.start_send({message_.data(), message_.size(), DType::u8}, peer, request_tag);
  }

  void read(std::span<float> parameters) {
    const std::lock_guard lock(mutex_);
    std::memcpy(parameters.data(), held_.data(), parameters.size_bytes());
  }

  void update(std::span<float> parameters, std::uint64_t samples, const std::function<void()>& step) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);  // who is asked hears of a lost rank by this thread alone
    }
    if (averaging_) {
      averaging_->wait();
      sending_->wait();
      // Whoever asks is asked by nobody.
      if (coding_) {
        met_->hear(*coding_, ConstBytes(answer_).first(averaging_->received_bytes()));
        met_->meet(held_);
      } else {
        held_.swap(arrived_);
      }
      averaging_.reset();
      ++averages_;
    }
    {
      const std::lock_guard lock(mutex_);
      std::memcpy(parameters.data(), held_.data(), parameters.size_bytes());
      step();
      std::memcpy(held_.data(), parameters.data(), parameters.size_bytes());
    }
    ended_ += samples;
  }

  void leave() {
    left_ = true;
    const Header header{.kind = Kind::leave};
    for (Rank peer = 0; peer < comm_.world(); ++peer)
      if (peer != comm_.rank() && serves(peer)) comm_.send(bytes(header), peer, request_tag);
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  std::uint64_t averages() const { return averages_; }
  std::uint64_t plain_messages() const { return coding_ ? coding_->plain() : 0; }
  std::size_t state_bytes() const { return (1 + 2 * pairs_.size()) * agreed_.size() * sizeof(float); }

 private:
  static std::unique_ptr<const CodedMessages> make_coding(Communicator& comm, const std::string& compress) {
    demand_same_spec(compress, comm);
    return replica::coding_of_pairs(compress);
  }

  CodedPair& pair_with(Rank peer) { return pairs_.try_emplace(peer, agreed_).first->second; }
  // The code of what this rank holds, for who is at the other end; the bytes last until the next one.
  ConstBytes tell(CodedPair& pair) {
    const auto world = static_cast<std::uint64_t>(comm_.world());
    const CodecKey key{.seed = mix(mix(number_) * world + static_cast<std::uint64_t>(comm_.rank())), .step = number_};
    ++number_;
    pair.tell(*coding_, key, held_, told_);
    return told_;
  }

  static bool asks(Rank rank) { return sync::PeerDraw::asks(rank); }
  static bool serves(Rank rank) { return rank == 0 || !asks(rank); }

  static TypedSpan bytes(const Header& header) {
    return {const_cast<void*>(static_cast<const void*>(&header)), sizeof header, DType::u8};
  }

  SampleStart ask_for_samples(std::uint64_t stop_at, std::uint64_t most) {
    const std::uint64_t ended = std::exchange(ended_, 0);
    if (comm_.rank() == 0) {
      desk_.ended_step(0, ended);
      return desk_.begin(stop_at, most);
    }
    const Header header{.kind = Kind::begin, .ended = ended, .stop_at = stop_at, .most = most};
    SampleDesk::Answer answer{};
    Work answering = desk_.expect(answer);
    comm_.send(bytes(header), 0, request_tag);
    answering.wait();
    return SampleDesk::read(answer);
  }

  // The thread of rank 0 and of those that are asked, until all others have left.
  void serve() {
    try {
      const std::size_t most = coding_ ? coding_->most_bytes(held_.size()) : bytes_held_;
      sync::Serving alone(static_cast<std::size_t>(comm_.world() - 1), 1);
      replica::serve_requests(comm_, alone, request_tag, sizeof(Header) + most,
                              [this](Rank from, ConstBytes request) { return answer(from, request); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      desk_.fail(failure_);
    }
  }

  // False: the worker has left.
  bool answer(Rank worker, ConstBytes message) {
    Header header;
    if (message.size() < sizeof header) replica::refuse(comm_, worker, "its request is cut short");
    std::memcpy(&header, message.data(), sizeof header);
    if (header.kind > Kind::leave) replica::refuse(comm_, worker, "no request is of that kind");
    if (header.kind == Kind::begin && comm_.rank() != 0)
      replica::refuse(comm_, worker, "samples are given out by rank 0");
    if (header.kind == Kind::leave) return false;
    if (header.kind == Kind::begin) {
      desk_.ended_step(worker, header.ended);
      desk_.asks(worker, header.stop_at, header.most);
      desk_.answer();
      return true;
    }
    const ConstBytes theirs = message.subspan(sizeof header);
    if (coding_) return answer_in_codes(worker, theirs);
    if (theirs.size() != bytes_held_) replica::refuse(comm_, worker, "it averages another number of parameters");
    mean_.resize(held_.size());
    std::memcpy(mean_.data(), theirs.data(), theirs.size());
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = 0; i < held_.size(); ++i) held_[i] = mean_[i] = (held_[i] + mean_[i]) / 2;
    }
    ++averages_;
    comm_.send(mean_, worker, average_tag);
    return true;
  }

  bool answer_in_codes(Rank worker, ConstBytes theirs) {
    CodedPair& pair = pair_with(worker);
    try {
      pair.hear(*coding_, theirs);
    } catch (const Error& problem) {
      replica::refuse(comm_, worker, problem.what());
    }
    {
      const std::lock_guard lock(mutex_);
      tell(pair);
      pair.meet(held_);
    }
    ++averages_;
    comm_.send({told_.data(), told_.size(), DType::u8}, worker, average_tag);
    return true;
  }

  Communicator& comm_;
  const std::unique_ptr<const CodedMessages> coding_;  // null: floats as they are
  SampleDesk desk_;
  std::mutex mutex_;
  const std::size_t bytes_held_;
  std::vector<float> held_;  // by mutex_ where others ask
  std::vector<std::byte> message_;
  std::vector<float> arrived_;  // the mean that this rank asked for
  std::vector<float> mean_;     // of the thread
  // Of the codec, and of those who ask or of the thread, for no rank is both.
  std::vector<float> agreed_;  // from where pairs begin
  std::map<Rank, CodedPair> pairs_;
  CodedPair* met_ = nullptr;  // of averaging_
  std::vector<std::byte> told_;
  std::vector<std::byte> answer_;
  std::uint64_t number_ = 0;  // of messages
  std::optional<Work> averaging_;
  std::optional<Work> sending_;
  sync::PeerDraw peers_;
  std::uint64_t ended_ = 0;
  std::atomic<std::uint64_t> averages_ = 0;
  std::exception_ptr failure_;
  bool left_ = false;
  std::jthread thread_;
};

PeerAverage::PeerAverage(Communicator& comm, std::span<const float> parameters, std::uint64_t before,
                         std::uint64_t seed, const std::string& compress)
    : impl_(std::make_unique<Impl>(comm, parameters, before, seed, compress)) {}
PeerAverage::~PeerAverage() = default;
SampleStart PeerAverage::begin(std::uint64_t stop_at, std::uint64_t most) { return impl_->begin(stop_at, most); }
void PeerAverage::start() { impl_->start_average(); }
void PeerAverage::read(std::span<float> parameters) { impl_->read(parameters); }
void PeerAverage::update(std::span<float> parameters, std::uint64_t samples, const std::function<void()>& step) {
  impl_->update(parameters, samples, step);
}
void PeerAverage::leave() { impl_->leave(); }
std::uint64_t PeerAverage::averages() const { return impl_->averages(); }
std::uint64_t PeerAverage::plain_messages() const { return impl_->plain_messages(); }
std::size_t PeerAverage::state_bytes() const { return impl_->state_bytes(); }

}  // namespace ranvier
