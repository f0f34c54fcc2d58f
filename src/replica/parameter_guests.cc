#include "ranvier/parameter_guests.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/parameter_server.h"

namespace ranvier {

class ParameterGuests::Impl {
 public:
  Impl(ParameterServer& server, std::size_t parameters, const GuestOptions& options)
      : server_(server),
        held_(parameters),
        service_(guest_service({.parameters = parameters,
                                .guests = ParameterServer::most_guests,
                                .pull = [this](Rank guest, std::span<float> into) { server_.pull_for(guest, into); },
                                .push = [this](Rank guest, const GuestCalls::Push& push,
                                               std::span<const float> gradient) { this->push(guest, push, gradient); }},
                               options)) {}

  std::uint16_t port() const { return service_->port(); }
  void open() { service_->open(); }
  void close() { service_->close(); }

 private:
  void push(Rank guest, const GuestCalls::Push& push, std::span<const float> gradient) {
    // Servers take one that is not above the last for that one sent again.
    std::uint64_t& last = last_[static_cast<std::size_t>(guest)];
    if (push.number < last)
      throw Error(ErrorKind::usage,
                  fmt::format("push {} of guest {} comes behind its push {}, and would change nothing; "
                              "number pushes rising, also those of a program that begins again",
                              push.number, guest, last));
    server_.exchange_for(guest, push.number, gradient, {.rate = push.rate, .share = push.share}, held_);
    last = push.number;
  }

  ParameterServer& server_;
  std::array<std::uint64_t, ParameterServer::most_guests> last_{};  // numbers of their pushes
  std::vector<float> held_;                                         // what a push leaves, which nobody asks for

  std::unique_ptr<GuestService> service_;  // ends first
};

ParameterGuests::ParameterGuests(ParameterServer& server, std::size_t parameters, const GuestOptions& options)
    : impl_(std::make_unique<Impl>(server, parameters, options)) {}
ParameterGuests::~ParameterGuests() = default;
std::uint16_t ParameterGuests::port() const { return impl_->port(); }
void ParameterGuests::open() { impl_->open(); }
void ParameterGuests::close() { impl_->close(); }

}  // namespace ranvier
