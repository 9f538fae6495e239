#pragma once
// Where this process runs, and what it takes there.

#include <cstdint>
#include <string>

namespace skrull {

/// Of the machine, for messages and to tell machines apart.
std::string host_name();

/// Largest resident memory so far, in bytes.
std::int64_t peak_process_memory();

}  // namespace skrull
