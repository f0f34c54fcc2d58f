// Parameter servers spread over the workers: every rank serves a range of the parameters from a thread of its own, and
// is a client of all ranges. Or on ranks of their own (ServerRule::servers), which only construct this and leave.
//
//   ParameterServer server(comm, *policy.server(), parameters, 0);
//   for (;;) {
//     const auto start = server.begin(all_samples, 32);
//     if (start.count == 0) break;
//     …                                       // the gradient of samples start.first … start.first + start.count
//     server.exchange(gradient, {.rate = learning_rate, .share = 0.25, .samples = start.count}, parameters);
//   }
//   server.leave();
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/exchange.h"
#include "ranvier/server.h"

namespace ranvier {

struct ParameterServerOptions {
  // In which order they own ranges (ServerRule::ranges), from the first parameter to the last; none: the servers in
  // their order.
  std::vector<Rank> owners = {};
  // Spec of a codec, for what workers push and what they are told then: see ParameterServer::exchange. What is owed to
  // gradients takes 4 bytes a parameter on a worker, what workers hold 4 bytes a parameter and worker on its server.
  std::string compress = "none";
  std::vector<Tensor> tensors = {};  // that the parameters are of, for codecs that choose by them; none: one
};

class ParameterServer {
 public:
  // All ranks call, with the same rule, parameters, options, and number of samples that all workers together have used
  // before. `comm` outlives this; its messages with this class's tags are this class's. Throws Error{usage} for an
  // owner that is named twice or is not in the world, and for a codec that takes the gradients of all ranks at once,
  // and Error{mismatch} naming a rank that has another one.
  ParameterServer(Communicator& comm, const ServerRule& rule, std::span<const float> parameters, std::uint64_t before,
                  const ParameterServerOptions& options = {});
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  using Start = SampleStart;  // `done`: their gradients have been pushed
  // Waits until this worker may take a step of at most so many samples, or until all have been given out up to
  // `stop_at`: then none gets any, so that they can look at the result together. `most` 0: it takes no steps until it
  // calls again, and nobody waits for it meanwhile.
  Start begin(std::uint64_t stop_at, std::uint64_t most);
  struct Push {
    double rate = 0;
    double share = 1;  // of these samples among those of a step of everybody's
    std::uint64_t samples = 1;
  };
  // Pushes a gradient, and leaves in `parameters` what the servers hold then. With a codec: pushes what it makes of the
  // gradient and of what it has held back before, and brings `parameters`, which are as exchange() or pull() of this
  // rank have left them, or those of the beginning, nearer to what the servers hold by a code of the difference.
  void exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters);
  // In two parts, between which this rank does something else, and pushes nothing: the gradient may change then, the
  // parameters are not to be touched. With a codec, others who hold the same parameters can follow() what this has done
  // to them by the bytes that it ends with, which last until the next exchange.
  enum class Follows : bool { no, yes };
  void start_exchange(std::span<const float> gradient, const Push& push, std::span<float> parameters,
                      Follows others = Follows::no);
  ConstBytes finish_exchange();
  void follow(ConstBytes told, std::span<float> parameters) const;
  const ParameterServerOptions& options() const;
  // So many workers push from now on; every rank calls, while none does.
  void set_workers(std::size_t workers);
  // Nothing is pushed; once all have been told to stop, and have met, they get the same.
  void pull(std::span<float> parameters);
  // For programs that are none of the job's workers, by number: as pull() and exchange(), but nobody waits for their
  // steps, and their samples are not counted. `push_number` rises from 1 for each guest; one that has been applied
  // changes nothing. Of one rank, any thread.
  static constexpr Rank most_guests = 64;
  void pull_for(Rank guest, std::span<float> parameters);
  void exchange_for(Rank guest, std::uint64_t push_number, std::span<const float> gradient, const Push& push,
                    std::span<float> parameters);
  // This worker takes no more steps; every rank calls, once all have stopped.
  void leave();
  // This rank cannot go on, and tells why to all, who would wait for what it pushes and answers.
  void abort(const std::string& why);
  // Of the codec: pushes and answers of this rank that went plain, since something was not finite; bytes kept from step
  // to step; and what is held back of gradients, a float for each parameter, for checkpoints. Empty where nothing is.
  std::uint64_t plain_messages() const;
  std::size_t state_bytes() const;
  std::span<float> residual();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranvier
