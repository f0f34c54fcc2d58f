// Stand in front of the C library's sendmsg(), send(), recvmsg() and recv() and of operator new in the program that
// links this.
#pragma once

#include <cstddef>
#include <map>

namespace ranvier::support {

// While one exists, the kernel takes and gives 1 to 97 bytes at a time, a different number each time.
class StingyKernel {
 public:
  StingyKernel();
  ~StingyKernel();
  StingyKernel(const StingyKernel&) = delete;
  StingyKernel& operator=(const StingyKernel&) = delete;
};

// What the kernel was asked, and took or gave, through one descriptor.
struct SocketCalls {
  std::size_t sends = 0;
  std::size_t sent_bytes = 0;
  std::size_t receives = 0;  // those too that found nothing
  std::size_t received_bytes = 0;
};
// By descriptor, of all that were used since the last clear_socket_calls().
std::map<int, SocketCalls> socket_calls();
void clear_socket_calls();

// Calls of operator new so far, by all threads.
std::size_t allocations();

}  // namespace ranvier::support
