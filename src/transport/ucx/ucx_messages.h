// One UCP worker: what it can send to which peers, and what it hears.
//
// Every transport has a worker and a context of its own, so that groups never see each other's messages and nothing is
// shared between threads. https://openucx.readthedocs.io/en/master/api.html
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/tagged_messages.h"

namespace ranvier::transport {

class UcxMessages final : public TaggedMessages {
 public:
  // Listens on the interface that has `interface_address`; empty: on all that UCX finds. For TCP on ports of `ports`.
  UcxMessages(Rank rank, Rank world, const std::string& interface_address, const PortRange& ports);
  ~UcxMessages() override;

  // Opaque bytes that peers need to reach this worker.
  std::string address() const;
  // UCX connects when the first message is sent. Throws Error{unreachable}.
  void connect(Rank peer, const std::string& address);

  Transfer send(Rank to, Lane, ConstBytes message, bool until_taken) override;
  std::optional<std::size_t> arrived(Rank from, Lane) override;
  Transfer receive(Rank from, Lane, Bytes into) override;
  bool over(Transfer) override;
  bool abandon(Transfer) override;
  bool may_sleep() override;
  void sleep(std::chrono::nanoseconds limit, const Fd& interrupt, int idle) override;

 private:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    ucs_status_t problem = UCS_OK;  // that ended the connection
  };
  struct Claimed {
    ucp_tag_message_h message = nullptr;
    std::size_t bytes = 0;
  };

  Transfer transfer_of(ucs_status_ptr_t request) const;
  bool ends(ucs_status_ptr_t request, std::chrono::steady_clock::time_point until);
  void close();

  const Rank rank_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int events_ = -1;  // the worker's, who owns it
  std::vector<Peer> peers_;
  std::vector<Claimed> claimed_;  // by peer and lane: what arrived() has found
};

}  // namespace ranvier::transport
