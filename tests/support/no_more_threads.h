// A system that gives this process no more threads: none has room for stacks of that size.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

namespace ranvier::support {

class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t vast;
    pthread_attr_init(&vast);
    EXPECT_EQ(pthread_attr_setstacksize(&vast, std::size_t{1} << 50), 0);
    EXPECT_EQ(pthread_setattr_default_np(&vast), 0);
    pthread_attr_destroy(&vast);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace ranvier::support
