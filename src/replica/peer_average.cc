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
    try {
      start_serving();
    } catch (const std::exception& why) {
      comm_.abort(why.what());  // the one that has been started waits for requests, and others for answers
      throw;
    }
  }
  ~Impl() {
    // Also for the memory that an average under way still writes to.
    if (!left_ && (averages_with_peers_.joinable() || gives_samples_.joinable() || averaging_))
      comm_.abort("its training ended before its peers' averages");
  }

  SampleStart begin(std::uint64_t stop_at, std::uint64_t most) {
    const SampleStart start = ask_for_samples(stop_at, most);
    if (start.count > 0) start_average();
    return start;
  }

  void start_average() {
    if (comm_.world() == 1 || is_asked(comm_.rank())) return;
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
    if (comm_.rank() != 0) comm_.send(bytes(header), 0, desk_tag);
    for (Rank peer = 0; peer < comm_.world(); ++peer)
      if (peer != comm_.rank() && is_asked(peer)) comm_.send(bytes(header), peer, request_tag);
    for (std::jthread* each : {&averages_with_peers_, &gives_samples_})
      if (each->joinable()) each->join();
    if (failure_) std::rethrow_exception(failure_);
  }

  std::uint64_t averages() const { return averages_; }
  std::uint64_t plain_messages() const { return coding_ ? coding_->plain() : 0; }
  std::size_t state_bytes() const { return (1 + 2 * pairs_.size()) * agreed_.size() * sizeof(float); }

 private:
  void start_serving() {
    if (is_asked(comm_.rank()))
      averages_with_peers_ = start_thread<std::jthread>("averages with peers", [this] {
        const std::size_t most = coding_ ? coding_->most_bytes(held_.size()) : bytes_held_;
        serve(request_tag, most, [this](Rank from, ConstBytes request) { return answer(from, request); });
      });
    // Apart, since nobody who only wants samples is to wait while a mean is on its way to another one.
    if (comm_.world() > 1 && comm_.rank() == 0)
      gives_samples_ = start_thread<std::jthread>("gives samples out", [this] {
        serve(desk_tag, 0, [this](Rank from, ConstBytes request) { return answer_for_samples(from, request); });
      });
  }

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

  bool is_asked(Rank rank) const { return !sync::PeerDraw::asks(rank, comm_.world()); }

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
    comm_.send(bytes(header), 0, desk_tag);
    answering.wait();
    return SampleDesk::read(answer);
  }

  // A thread, until all others have left. `answer` is false of who has.
  void serve(std::uint64_t tag, std::size_t most, const std::function<bool(Rank from, ConstBytes request)>& answer) {
    try {
      sync::Serving alone(static_cast<std::size_t>(comm_.world() - 1), 1);
      replica::serve_requests(comm_, alone, tag, sizeof(Header) + most, answer);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      desk_.fail(failure_);
    }
  }

  Header checked_request(Rank worker, ConstBytes message, Kind expected) const {
    Header header;
    if (message.size() < sizeof header) replica::refuse(comm_, worker, "its request is cut short");
    std::memcpy(&header, message.data(), sizeof header);
    if (header.kind != expected && header.kind != Kind::leave)
      replica::refuse(comm_, worker, "no request of that kind comes this way");
    return header;
  }

  bool answer_for_samples(Rank worker, ConstBytes message) {
    const Header header = checked_request(worker, message, Kind::begin);
    if (header.kind == Kind::leave) return false;
    desk_.ended_step(worker, header.ended);
    desk_.asks(worker, header.stop_at, header.most);
    desk_.answer();
    return true;
  }

  bool answer(Rank worker, ConstBytes message) {
    if (checked_request(worker, message, Kind::average).kind == Kind::leave) return false;
    const ConstBytes theirs = message.subspan(sizeof(Header));
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
  std::jthread averages_with_peers_;
  std::jthread gives_samples_;
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
