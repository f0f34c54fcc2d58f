// What callbacks of Work::on_done have to know of where they run.
#pragma once

namespace ranvier {

// Whether this thread is in such a callback, called by an engine whose operations it ends otherwise. These go on while
// the callback waits in Work::wait() or a blocking call; where it waits by other means, as for a future, another thread
// takes over within a second. So what is started there, and needed there, is better run to its end.
bool in_callback();

}  // namespace ranvier
