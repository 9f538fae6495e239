#pragma once
// The clocks that the CPU's streams may run by.

#include <memory>

#include "skrull/device/stream.h"

namespace skrull {

/// The wall's. All processes of a host read the same.
std::unique_ptr<StreamClock> make_steady_clock();

/// Processor time of the calling thread, plus what was waited for: how far a thread would be had it a core of its own.
std::unique_ptr<StreamClock> make_processor_clock();

/// Moves by wait_until() alone: tasks take no time but what they say.
std::unique_ptr<StreamClock> make_still_clock();

}  // namespace skrull
