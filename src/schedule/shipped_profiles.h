#pragma once
// The profiles of configs/hardware, which the build puts into the program (shipped_profiles.cpp.in).

#include <span>

namespace skrull {

struct ShippedProfile {
  const char* name;
  const char* text;  ///< of the file
};

std::span<const ShippedProfile> shipped_profiles();

}  // namespace skrull
