#pragma once
// Whether an attention engine computes on this very GPU what another one does.

#include <string>

#include "ops/attention_engine.h"
#include "skrull/device/device.h"

namespace skrull {

/// Computes packed sequences of small random shapes by both engines, forward, on the compute stream, and waits for it.
/// Empty when they agree within what bf16 allows; else what differs. Shapes that `engine` does not take agree.
std::string compare_attention(Device& device, AttentionEngine& engine, AttentionEngine& reference);

}  // namespace skrull
