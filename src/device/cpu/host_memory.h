#pragma once
// Host memory: large, aligned, zero-filled pieces, and how much is left.

#include <cstdint>

namespace skrull {

/// Bytes the process may still take: the machine's available memory or what its control groups leave, the smaller.
std::int64_t available_host_memory();

/// Zero-filled pages, aligned to 2 MiB from that size on and to a page below. They are touched here, by the OpenMP
/// threads that will work on them, so that memory that was planned is memory that is there. nullptr when there is not
/// enough.
void* allocate_pages(std::int64_t bytes);
void free_pages(void* data, std::int64_t bytes) noexcept;

}  // namespace skrull
