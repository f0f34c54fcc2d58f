// Ctrl-C while C++ waits: Python runs what handles a signal between its own instructions, on its main thread, and
// raises there what that raises. See docs/decisions/0040.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ranvier::pytorch {

// `python`: a store written in Python, which Python itself keeps alive, whose check() does nothing; null: nothing
// interrupts any more, as before the first call.
void set_interrupts(c10::intrusive_ptr<c10d::Store> python);

// For CommunicatorOptions::check_interrupt. On the main thread it enters Python, and throws what a handler has raised
// there, as Python's callers get it; elsewhere it does nothing.
void check_interrupt();

}  // namespace ranvier::pytorch
