#include "ranvier/parameter_server.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/mix.h"
#include "base/parts.h"
#include "base/thread.h"
#include "exchange/same_spec.h"
#include "ranvier/error.h"
#include "replica/coded_message.h"
#include "replica/owned_ranges.h"
#include "replica/requests.h"
#include "replica/sample_desk.h"
#include "replica/server_requests.h"

namespace ranvier {
namespace {

using namespace replica::server_requests;
using replica::CodedMessages;
using replica::SampleDesk;

}  // namespace

class ParameterServer::Impl {
 public:
  Impl(Communicator& comm, const ServerRule& rule, std::span<const float> parameters, std::uint64_t before,
       const ParameterServerOptions& options)
      : comm_(comm),
        options_(options),
        owned_(parameters.size(), comm.world(),
               options.owners.empty() ? all_owners(rule, comm.world()) : checked(options.owners, comm.world()),
               rule.ranges),
        workers_(workers_of(rule, comm.world())),
        coding_(make_coding(comm, options)),
        shard_(own_of(parameters), comm.world(), rule, most_guests, coding_ != nullptr),
        desk_(comm, workers_, rule.bound, before, start_tag),
        serving_(static_cast<std::size_t>(comm.world() - 1), sync::serving_threads) {
    if (coding_) prepare_codes(parameters.size());
    try {
      for (std::size_t threads = serving_.threads(); threads > 0; --threads)
        threads_.push_back(start_thread<std::jthread>("the parameter server", [this] { serve(); }));
    } catch (const std::exception& why) {
      comm_.abort(why.what());  // those that have been started wait for requests
      throw;
    }
  }
  ~Impl() {
    if (!threads_.empty() && !left_) abort("its training ended before its parameter servers");
    abandon(asked_.under_way);
  }
  // What failed elsewhere has ended these, too, or will; their memory outlives this.
  static void abandon(std::span<Work> works) noexcept {
    try {
      Work::wait_all(works);
    } catch (const std::exception&) {
    }
  }
  void abort(const std::string& why) {
    left_ = true;
    comm_.abort(why);
  }

  Start begin(std::uint64_t stop_at, std::uint64_t most) {
    if (comm_.rank() == 0) return desk_.begin(stop_at, most);
    const Header header{.kind = Kind::begin, .stop_at = stop_at, .most = most};
    SampleDesk::Answer answer{};
    Work answering = desk_.expect(answer);
    comm_.send(bytes(header), 0, request_tag);
    answering.wait();
    return SampleDesk::read(answer);
  }

  void start_exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters, Follows others) {
    ++number_;
    const Header header{.kind = Kind::push, .number = number_, .push = push};
    if (coding_)
      ask_in_codes(header, gradient, parameters, others);
    else
      asked_ = start_asking(header, gradient, parameters);
    if (comm_.rank() == 0) desk_.answer();
    exchanging_ = parameters;
    others_ = others;
  }
  ConstBytes finish_exchange() {
    if (coding_)
      hear_in_codes(exchanging_, others_);
    else
      finish_asking(asked_, exchanging_);
    return told_;
  }
  void follow(ConstBytes told, std::span<float> parameters) const {
    for (Rank server = 0; server < comm_.world(); ++server)
      if (owned_.size_of(server) > 0) hear(server, take_part(told), parameters);
  }
  const ParameterServerOptions& options() const { return options_; }
  std::uint64_t plain_messages() const { return coding_ ? coding_->plain() : 0; }
  std::size_t state_bytes() const {
    if (!coding_) return 0;
    return residual_.size() * sizeof(float) + static_cast<std::size_t>(comm_.world()) * bytes_owned();
  }
  std::span<float> residual() { return residual_; }
  void set_workers(std::size_t workers) {
    const std::lock_guard lock(mutex_);
    shard_.set_workers(workers);
  }
  void pull(std::span<float> parameters) { ask({.kind = Kind::pull}, {}, parameters); }

  void pull_for(Rank guest, std::span<float> parameters) {
    const std::lock_guard lock(guests_mutex_);
    ask({.kind = Kind::pull, .guest = guest}, {}, parameters);
  }
  void exchange_for(Rank guest, std::uint64_t push_number, std::span<const float> gradient, const Push& push,
                    std::span<float> parameters) {
    const std::lock_guard lock(guests_mutex_);
    ask({.kind = Kind::push, .number = push_number, .push = push, .guest = guest}, gradient, parameters);
  }

  void leave() {
    left_ = true;
    const Header header{.kind = Kind::leave};
    for (Rank server = 0; server < comm_.world(); ++server)
      if (server != comm_.rank()) comm_.send(bytes(header), server, request_tag);
    for (std::jthread& each : threads_) each.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static std::vector<Rank> all_owners(const ServerRule& rule, Rank world) {
    std::vector<Rank> owners(rule.servers > 0 ? rule.servers : static_cast<std::size_t>(world));
    std::iota(owners.begin(), owners.end(), rule.servers > 0 ? workers_of(rule, world) : 0);
    return owners;
  }
  static std::vector<Rank> checked(const std::vector<Rank>& owners, Rank world) {
    std::set<Rank> known;
    for (const Rank owner : owners)
      if (owner < 0 || owner >= world || !known.insert(owner).second)
        throw Error(ErrorKind::usage,
                    fmt::format("rank {} cannot own a range of the parameters twice, or in a world of "
                                "{}; name ranks from 0 to {}, each once",
                                owner, world, world - 1));
    return owners;
  }
  // Rank 0, which gives samples out, hears of each push.
  bool is_asked(Rank rank) const { return rank == 0 || owned_.size_of(rank) > 0; }
  bool is_other(Rank server) const { return server != comm_.rank() && is_asked(server); }
  // One range behind the other.
  std::vector<float> of(std::span<const float> all, Rank rank) const {
    std::vector<float> part(owned_.size_of(rank));
    owned_.collect(all, rank, std::as_writable_bytes(std::span(part)).data());
    return part;
  }
  std::vector<float> own_of(std::span<const float> all) const { return of(all, comm_.rank()); }

  template <class Value>
  static TypedSpan bytes(Value& value) {
    return {const_cast<void*>(static_cast<const void*>(&value)), sizeof value, DType::u8};
  }

  // What is under way to servers and back.
  struct Asked {
    std::vector<std::unique_ptr<std::byte[]>> requests = {};
    std::vector<std::pair<Rank, std::unique_ptr<float[]>>> arriving = {};  // of several ranges
    std::vector<Work> under_way = {};
  };

  // The same request to every server, with its range of the gradient; what each holds afterwards.
  void ask(const Header& header, std::span<const float> gradient, std::span<float> parameters) {
    Asked asked = start_asking(header, gradient, parameters);
    finish_asking(asked, parameters);
  }

  Asked start_asking(const Header& header, std::span<const float> gradient, std::span<float> parameters) {
    Asked asked;
    for (Rank server = 0; server < comm_.world(); ++server) {
      if (!is_other(server)) continue;
      const std::size_t size = owned_.size_of(server);
      const std::size_t length = sizeof header + (gradient.empty() ? 0 : size * sizeof(float));
      std::byte* const request = asked.requests.emplace_back(std::make_unique_for_overwrite<std::byte[]>(length)).get();
      std::memcpy(request, &header, sizeof header);
      if (!gradient.empty()) owned_.collect(gradient, server, request + sizeof header);
      auto into = owned_.in_place(parameters, server);
      if (!into)
        into = {asked.arriving.emplace_back(server, std::make_unique_for_overwrite<float[]>(size)).second.get(), size};
      asked.under_way.push_back(comm_.start_recv(*into, server, tag_of(header)));
      asked.under_way.push_back(comm_.start_send({request, length, DType::u8}, server, request_tag));
    }
    if (is_asked(comm_.rank())) {
      const auto in_place = owned_.in_place(gradient, comm_.rank());
      const std::vector<float> collected = in_place ? std::vector<float>() : own_of(gradient);
      take(comm_.rank(), header, in_place ? *in_place : collected,
           [&](std::span<const float> held) { owned_.spread(held, comm_.rank(), parameters); });
    }
    return asked;
  }

  void finish_asking(Asked& asked, std::span<float> parameters) const {
    Work::wait_all(asked.under_way);
    for (const auto& [server, part] : asked.arriving)
      owned_.spread({part.get(), owned_.size_of(server)}, server, parameters);
    asked = {};
  }

  // ---- By a codec.

  static std::unique_ptr<const CodedMessages> make_coding(Communicator& comm, const ParameterServerOptions& options) {
    demand_same_spec(options.compress, comm);
    if (options.compress == "none") return nullptr;
    return std::make_unique<const CodedMessages>(replica::codec_of_messages(options.compress));
  }

  void prepare_codes(std::size_t parameters) {
    if (coding_->codec().state_parts() > 0 && comm_.rank() < workers_) residual_.resize(parameters);
    if (coding_->codec().chooses_by_tensor())
      for (const Tensor& tensor : options_.tensors) pieces_.push_back({.size = tensor.size(), .of = tensor.size()});
    pushes_.resize(static_cast<std::size_t>(comm_.world()));
    answered_.resize(pushes_.size(), 0);
  }

  // As ask(): each server's code is made while those before it travel. This rank's own range needs none, but where
  // others follow what it is told, who do not hold its range.
  void ask_in_codes(const Header& header, std::span<const float> gradient, std::span<float> parameters,
                    Follows others) {
    for (Rank server = 0; server < comm_.world(); ++server) {
      if (!is_other(server)) continue;
      CodedPush& push = pushes_[static_cast<std::size_t>(server)];
      push.answer.resize(coding_->most_bytes(owned_.size_of(server)));
      push.answering =
          comm_.start_recv_at_most({push.answer.data(), push.answer.size(), DType::u8}, server, values_tag);
      push.request.resize(sizeof header + coding_->most_bytes(owned_.size_of(server)));
      std::memcpy(push.request.data(), &header, sizeof header);
      const std::size_t length = encode_gradient(gradient, server, Bytes(push.request).subspan(sizeof header));
      push.sending = comm_.start_send({push.request.data(), sizeof header + length, DType::u8}, server, request_tag);
    }
    if (is_asked(comm_.rank())) push_to_itself(header, gradient, parameters, others);
  }

  void hear_in_codes(std::span<float> parameters, Follows others) {
    for (Rank server = 0; server < comm_.world(); ++server) {
      if (!is_other(server)) continue;
      CodedPush& push = pushes_[static_cast<std::size_t>(server)];
      push.sending.wait();
      push.answering.wait();
      push.answer.resize(push.answering.received_bytes());
      hear(server, push.answer, parameters);
    }
    if (others == Follows::no) return;
    told_.clear();
    for (Rank server = 0; server < comm_.world(); ++server)
      if (owned_.size_of(server) > 0) append_part(told_, pushes_[static_cast<std::size_t>(server)].answer);
  }

  std::size_t encode_gradient(std::span<const float> gradient, Rank server, Bytes code) {
    const auto in_place = owned_.in_place(gradient, server);
    const std::vector<float> collected = in_place ? std::vector<float>() : of(gradient, server);
    const auto pieces = owned_.pieces(pieces_, server);
    const CodecKey key{.seed = seed_of(number_, comm_.rank(), server), .step = number_ - 1, .pieces = pieces};
    std::size_t length = 0;
    const auto encode = [&](std::span<float> residual) {
      length = coding_->write(in_place ? *in_place : collected, {.residual = residual}, key, code);
    };
    if (residual_.empty())
      encode({});
    else
      owned_.change(std::span(residual_), server, encode);
    return length;
  }

  void push_to_itself(const Header& header, std::span<const float> gradient, std::span<float> parameters,
                      Follows others) {
    const Rank own = comm_.rank();
    const auto in_place = owned_.in_place(gradient, own);
    const std::vector<float> collected = in_place ? std::vector<float>() : of(gradient, own);
    const std::span<const float> pushed = in_place ? *in_place : collected;
    if (others == Follows::no)
      return take(own, header, pushed, [&](std::span<const float> held) { owned_.spread(held, own, parameters); });
    std::vector<std::byte>& answer = pushes_[static_cast<std::size_t>(own)].answer;
    take_in_codes(own, header, pushed, answer);
    hear(own, answer, parameters);
  }

  // A push of this rank's shard, and the code of how the worker's values have to change.
  void take_in_codes(Rank worker, const Header& header, std::span<const float> gradient,
                     std::vector<std::byte>& answer) {
    const std::lock_guard lock(mutex_);
    apply(worker, header, gradient);
    const auto [values, held] = shard_.pull_change(worker);
    const auto pieces = owned_.pieces(pieces_, comm_.rank());
    std::uint64_t& number = answered_[static_cast<std::size_t>(worker)];
    const CodecKey key{.seed = seed_of(~number, worker, comm_.rank()), .step = number, .pieces = pieces};
    ++number;
    answer.resize(coding_->most_bytes(values.size()));
    answer.resize(coding_->write_change(values, held, key, answer));
  }

  void hear(Rank server, ConstBytes answer, std::span<float> parameters) const {
    owned_.change(parameters, server, [&](std::span<float> part) { coding_->read_change(answer, part); });
  }

  std::uint64_t seed_of(std::uint64_t number, Rank worker, Rank server) const {
    const auto world = static_cast<std::uint64_t>(comm_.world());
    return mix(mix(number) + static_cast<std::uint64_t>(worker) * world + static_cast<std::uint64_t>(server));
  }

  // ---- Both.

  // A worker and guests may ask at the same time.
  static std::uint64_t tag_of(const Header& header) { return header.guest >= 0 ? guest_values_tag : values_tag; }

  // A push or a pull of this rank's shard, and what is done with what it holds then.
  template <class Use>
  void take(Rank worker, const Header& header, std::span<const float> gradient, const Use& use) {
    const std::lock_guard lock(mutex_);
    if (header.kind == Kind::push) apply(worker, header, gradient);
    use(shard_.pull(who(worker, header)));
  }
  void apply(Rank worker, const Header& header, std::span<const float> gradient) {
    const auto& push = header.push;
    if (shard_.push(who(worker, header), header.number, push.rate, push.share, gradient) && header.guest < 0)
      desk_.ended_step(worker, push.samples);
  }
  Rank who(Rank worker, const Header& header) const {
    return header.guest >= 0 ? comm_.world() + header.guest : worker;
  }

  // Of a thread of the server: what it is asked for, and answers, or the code of it.
  struct Served {
    std::vector<float> pushed;
    std::vector<float> held;
    std::vector<std::byte> answer;
  };

  // Each of its threads, until all other workers have left.
  void serve() {
    try {
      Served served;
      const std::size_t owned = owned_.size_of(comm_.rank());
      const std::size_t most = std::max(bytes_owned(), coding_ ? coding_->most_bytes(owned) : 0);
      replica::serve_requests(comm_, serving_, request_tag, sizeof(Header) + most,
                              [&](Rank from, ConstBytes request) { return answer(from, request, served); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      desk_.fail(failure_);
    }
  }
  std::size_t bytes_owned() const { return owned_.size_of(comm_.rank()) * sizeof(float); }

  // Also of a rank that runs wild: what follows counts on every number of it.
  Header checked_request(Rank worker, ConstBytes message) const {
    const auto refuse = [&](const char* why) { replica::refuse(comm_, worker, why); };
    Header header;
    if (message.size() < sizeof header) refuse("its request is cut short");
    std::memcpy(&header, message.data(), sizeof header);
    const bool pushes = header.kind == Kind::push;
    if (header.kind > Kind::leave) refuse("no request is of that kind");
    if (!is_coded(header) && message.size() - sizeof header != (pushes ? bytes_owned() : 0))
      refuse("its gradient is of another size");
    if (header.guest < -1 || header.guest >= most_guests) refuse("there is no such guest");
    if (header.kind == Kind::begin && comm_.rank() != 0) refuse("samples are given out by rank 0");
    if ((header.kind == Kind::begin || (pushes && header.guest < 0)) && worker >= workers_)
      refuse("it is a server and takes no steps");
    return header;
  }

  // False: the worker has left. Who waits for samples is told first, since values take longer.
  bool answer(Rank worker, ConstBytes message, Served& served) {
    const Header header = checked_request(worker, message);
    if (header.kind == Kind::leave) return false;
    if (header.kind == Kind::begin) {
      desk_.asks(worker, header.stop_at, header.most);
      desk_.answer();
      return true;
    }
    try {
      serve(worker, header, message.subspan(sizeof header), served);
    } catch (const Error& problem) {
      replica::refuse(comm_, worker, problem.what());
    }
    if (comm_.rank() == 0) desk_.answer();
    if (is_coded(header))
      comm_.send({served.answer.data(), served.answer.size(), DType::u8}, worker, values_tag);
    else
      comm_.send(served.held, worker, tag_of(header));
    return true;
  }

  bool is_coded(const Header& header) const { return coding_ && header.kind == Kind::push && header.guest < 0; }
  void serve(Rank worker, const Header& header, ConstBytes gradient, Served& served) {
    if (is_coded(header)) {
      served.pushed.resize(owned_.size_of(comm_.rank()));
      coding_->read(gradient, served.pushed);
      return take_in_codes(worker, header, served.pushed, served.answer);
    }
    served.pushed.resize(gradient.size() / sizeof(float));
    if (!gradient.empty()) std::memcpy(served.pushed.data(), gradient.data(), gradient.size());
    take(worker, header, served.pushed,
         [&](std::span<const float> held) { served.held.assign(held.begin(), held.end()); });
  }

  Communicator& comm_;
  const ParameterServerOptions options_;
  const replica::OwnedRanges owned_;
  std::mutex mutex_;
  std::mutex guests_mutex_;                            // one of them at a time
  const Rank workers_;                                 // those before the ranks that only serve
  const std::unique_ptr<const CodedMessages> coding_;  // null: floats as they are
  struct CodedPush {
    std::vector<std::byte> request;
    std::vector<std::byte> answer;
    Work sending;
    Work answering;
  };
  std::vector<CodedPush> pushes_;  // by server
  Asked asked_;                    // by start_exchange(); in codes that is in pushes_
  std::span<float> exchanging_;    // parameters
  Follows others_ = Follows::no;
  std::vector<std::uint64_t> answered_;  // by worker: how many of its pushes
  std::vector<float> residual_;          // of this worker's gradients
  std::vector<TensorPiece> pieces_;      // of all parameters, where the codec asks
  std::vector<std::byte> told_;          // for those who follow
  ParameterShard shard_;
  SampleDesk desk_;
  sync::Serving serving_;
  std::exception_ptr failure_;
  std::uint64_t number_ = 0;  // of this worker's pushes
  bool left_ = false;
  std::vector<std::jthread> threads_;
};

ParameterServer::ParameterServer(Communicator& comm, const ServerRule& rule, std::span<const float> parameters,
                                 std::uint64_t before, const ParameterServerOptions& options)
    : impl_(std::make_unique<Impl>(comm, rule, parameters, before, options)) {}
ParameterServer::~ParameterServer() = default;
void ParameterServer::abort(const std::string& why) { impl_->abort(why); }
ParameterServer::Start ParameterServer::begin(std::uint64_t stop_at, std::uint64_t most) {
  return impl_->begin(stop_at, most);
}
void ParameterServer::set_workers(std::size_t workers) { impl_->set_workers(workers); }
void ParameterServer::start_exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters,
                                     Follows others) {
  impl_->start_exchange(gradient, push, parameters, others);
}
ConstBytes ParameterServer::finish_exchange() { return impl_->finish_exchange(); }
void ParameterServer::exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters) {
  impl_->start_exchange(gradient, push, parameters, Follows::no);
  impl_->finish_exchange();
}
void ParameterServer::follow(ConstBytes told, std::span<float> parameters) const { impl_->follow(told, parameters); }
const ParameterServerOptions& ParameterServer::options() const { return impl_->options(); }
std::uint64_t ParameterServer::plain_messages() const { return impl_->plain_messages(); }
std::size_t ParameterServer::state_bytes() const { return impl_->state_bytes(); }
std::span<float> ParameterServer::residual() { return impl_->residual(); }
void ParameterServer::pull(std::span<float> parameters) { impl_->pull(parameters); }
void ParameterServer::pull_for(Rank guest, std::span<float> parameters) { impl_->pull_for(guest, parameters); }
void ParameterServer::exchange_for(Rank guest, std::uint64_t push_number, std::span<const float> gradient,
                                   const Push& push, std::span<float> parameters) {
  impl_->exchange_for(guest, push_number, gradient, push, parameters);
}
void ParameterServer::leave() { impl_->leave(); }

}  // namespace ranvier
