#pragma once
// Warp instructions on the CPU: all lanes' data in one place, then one lane computes for all.

#include <cstddef>
#include <cstdint>

#include "kernel/call_position.h"

namespace skrull::simt {

enum class Shuffle { index, up, down, exclusive_or };

/// Exchanges `value` between the lanes of `mask` in segments of `width`, as __shfl_*_sync does. A lane that reads
/// outside its segment keeps its value; one that reads outside the mask is an error.
void shuffle(Shuffle kind, std::uint32_t mask, void* value, std::size_t bytes, int operand, int width,
             CallPosition where);

/// Bit i of the result: lane i's predicate.
std::uint32_t ballot(std::uint32_t mask, bool predicate, CallPosition where);

void synchronize_warp(std::uint32_t mask, CallPosition where);
void synchronize_block(CallPosition where);

/// d += a b for m16n8k16, fragments as in the PTX manual; products and sums in fp32, in ascending k.
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], CallPosition where);

/// Lane l brings row l % 8 of matrix l / 8, eight 16-bit elements; the result is this lane's part of the four matrices.
void load_matrices(bool transposed, std::uint32_t (&result)[4], const std::uint16_t (&row)[8], CallPosition where);

}  // namespace skrull::simt
