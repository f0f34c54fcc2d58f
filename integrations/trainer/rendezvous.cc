#include "integrations/trainer/rendezvous.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "integrations/torch/backend.h"
#include "ranvier/error.h"

namespace ranvier::trainer {

std::unique_ptr<Store> tcp_store(const TcpStorePlace& place, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.serve;
  options.waitWorkers = false;  // the communicator counts them, and names those who are missing
  options.timeout = timeout;
  try {
    auto server = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    return pytorch::torch_store(c10::make_intrusive<c10d::PrefixStore>(place.prefix, std::move(server)));
  } catch (const c10::Error& problem) {
    const std::string where = place.address + ":" + std::to_string(place.port);
    throw Error(ErrorKind::unreachable,
                place.serve
                    ? "cannot serve torch's store at " + where + ": is the port taken? Choose another MASTER_PORT (" +
                          problem.what_without_backtrace() + ")"
                    : "torch's store at " + where + " does not answer: check MASTER_ADDR, MASTER_PORT and the " +
                          "network (" + problem.what_without_backtrace() + ")");
  }
}

}  // namespace ranvier::trainer
