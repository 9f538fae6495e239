#pragma once
// What this process is doing, for messages of threads that see only their own part of it.

#include <string>

namespace skrull {

/// "step 12", "saving checkpoint-10". Any thread.
void set_activity(const std::string& text);
std::string activity();

}  // namespace skrull
