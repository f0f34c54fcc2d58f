// Stand in front of the C library's sendmsg() and recv() and of operator new in the program that links this.
#pragma once

#include <cstddef>

namespace ranvier::support {

// While one exists, the kernel takes and gives 1 to 97 bytes at a time, a different number each time.
class StingyKernel {
 public:
  StingyKernel();
  ~StingyKernel();
  StingyKernel(const StingyKernel&) = delete;
  StingyKernel& operator=(const StingyKernel&) = delete;
};

// Calls of operator new so far, by all threads.
std::size_t allocations();

}  // namespace ranvier::support
