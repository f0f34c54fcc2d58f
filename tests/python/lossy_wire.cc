// Loaded before the C library by ranks that lose packets on purpose: tests/support/lossy_wire.h, told by Python how
// many.
#include "support/lossy_wire.h"

extern "C" void lose(double share, int times) {
  ranvier::support::lost_share = share;
  ranvier::support::times_lost = times;
}
