// One lane to one peer: a stream of bytes over one socket, or over several where one does not carry what the line does.
//
// Byte n of the stream travels on socket n / stripe mod sockets: both ends know where the next byte is, so nothing is
// framed, and a message that lies within a stripe costs what it costs on one socket. What is given up is adaptation: a
// stream runs at `sockets` times the rate of its slowest socket, as the buffers of the others fill up. That is the
// right trade for what several sockets are for: limits that are the same for each, such as the rate that a cloud
// allows a flow, or a window that is smaller than rate times round trip. H. Sivakumar, S. Bailey, R. Grossman,
// "PSockets: The Case for Application-level Network Striping for Data Intensive Applications using High Speed Wide Area
// Networks", SC 2000, striped data over sockets to reach without tuning what takes an administrator's windows
// otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/transport.h"
#include "transport/arrival_pace.h"
#include "transport/channel.h"
#include "transport/receive_buffers.h"

namespace ranvier::transport {

// The largest head, see Transport::try_send.
inline constexpr std::size_t most_head = 64;
// What travels on one socket before the next one's turn: what the kernel sends down as one packet, and small enough for
// a slice to keep many sockets busy.
inline constexpr std::size_t stripe_bytes = 64 << 10;

class TcpStream {
 public:
  // Of rank `self` to `peer` over `transport`, for what errors say. `channels`: connected, in the order of both ends.
  // `buffers` outlives the stream.
  TcpStream(std::string_view transport, Rank self, Rank peer, Lane lane, std::vector<Channel> channels,
            ReceiveBuffers& buffers);
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  // As Transport has them.
  std::size_t try_send(ConstBytes head, ConstBytes body);
  ConstBytes try_recv(Bytes into);
  void release(std::size_t bytes);

  // Whether `bytes` more take long to come. To wake up for them: the number of a socket, and how much has to be there.
  bool takes_long(std::size_t bytes) const;
  struct Awaited {
    std::size_t socket;
    std::size_t bytes;
  };
  Awaited awaited(std::size_t bytes) const;

  // Sends what was taken and waits here, the rest of a head or of a TLS record; whether nothing is left of it.
  bool flush();
  bool flushed() const;
  // Whether the kernel refused bytes at the last attempt to send, and the number of the socket that must take them.
  bool blocked() const { return blocked_; }
  std::size_t blocked_socket() const;
  // Whether the last view was returned without a look at what has arrived since.
  bool unsure() const { return unsure_; }
  // No more is sent. The kernel has its own copy of whatever was accepted (within TLS of what it had room for, the rest
  // is given up); that still arrives, then the peer sees the end.
  void shut_down();
  // The same, and nothing is given up: before the stream is destroyed, again and again, until it returns 0: all that
  // was accepted has arrived there, or never will. Else about how much has not. What comes meanwhile is thrown away.
  std::size_t leave();

  const Fd& socket(std::size_t number) const { return channels_[number].socket(); }
  Rank peer() const { return peer_; }
  Lane lane() const { return lane_; }
  // What the other side need not have read for so many bytes to be taken: once the socket whose turn it is is full,
  // each of the others holds no more than a stripe less.
  std::size_t buffered_bytes() const;

  bool listed = false;  // of the transport: it knows already that this one is blocked

 private:
  // Where in the stream one direction is.
  struct Cursor {
    std::size_t socket = 0;
    std::size_t left = 0;  // bytes of the stripe
  };
  void advance(Cursor&, std::size_t bytes) const;
  std::size_t write(ConstBytes head, ConstBytes body);
  std::size_t read(Bytes into);
  std::size_t pull(Bytes into);
  void grow();
  [[noreturn]] void throw_lost(const Channel&, int problem) const;

  std::size_t unread() const { return end_ - begin_; }

  const std::string_view transport_;
  const Rank self_;
  const Rank peer_;
  const Lane lane_;
  std::vector<Channel> channels_;
  const std::size_t stripe_;  // endless on a single socket
  const std::string remote_;  // its address, for error messages

  Cursor sending_;
  // The end of a head of which the kernel took only the beginning.
  std::array<std::byte, most_head> rest_{};
  std::size_t rest_begin_ = 0;
  std::size_t rest_end_ = 0;
  bool blocked_ = false;

  // What arrived and was not released: [begin, end) of the buffer, which is only held while there is any.
  Cursor receiving_;
  ReceiveBuffers& buffers_;
  ReceiveBuffers::Buffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  ArrivalPace pace_{ArrivalPace::ticks_of_long_wait};
  bool seen_ = false;  // the caller has had a view of all of it, and used nothing
  bool unsure_ = false;
  bool ended_ = false;  // the socket whose turn it is has ended: nothing can follow
  int problem_ = 0;     // the errno that ended it; 0 for an orderly end
};

}  // namespace ranvier::transport
