#pragma once
// Whether an attention engine computes on this very GPU what another one does.

#include <string>

#include "ops/attention_engine.h"
#include "skrull/device/device.h"

namespace skrull {

/// Each computes packed sequences of small random shapes by both engines, on the compute stream, and waits for it.
/// Empty when they agree within what bf16 allows; else what differs, or why `engine` does not take such sequences.
std::string compare_attention_forward(Device& device, AttentionEngine& engine, AttentionEngine& reference);
/// With `deterministic`, the engine must also give the same bits twice.
std::string compare_attention_backward(Device& device, AttentionEngine& engine, AttentionEngine& reference,
                                       bool deterministic);

}  // namespace skrull
