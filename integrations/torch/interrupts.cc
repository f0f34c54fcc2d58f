#include "integrations/torch/interrupts.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace ranvier::pytorch {
namespace {

std::mutex mutex;
c10::intrusive_ptr<c10d::Store> interrupts;  // guarded by mutex

// Linux calls it by the number of the process; a process that a thread forked off has that thread for its main one.
bool is_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

}  // namespace

void set_interrupts(c10::intrusive_ptr<c10d::Store> python) {
  const std::lock_guard lock(mutex);
  interrupts = std::move(python);
}

void check_interrupt() {
  if (!is_main_thread()) return;
  c10::intrusive_ptr<c10d::Store> python;
  {
    const std::lock_guard lock(mutex);
    python = interrupts;
  }
  if (python) python->check({});
}

}  // namespace ranvier::pytorch
