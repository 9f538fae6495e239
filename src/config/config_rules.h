#pragma once
// Contradictions: rules that tie several options together.

#include <string>
#include <string_view>
#include <vector>

#include "skrull/config/train_config.h"

namespace skrull {

/// A rule judges values alone, never whether a key was written, so that the echo of a config is as valid as the config.
struct ConfigRule {
  std::vector<std::string_view> options;  ///< not judged when one of them has a wrong value; reported at the first
  std::string (*violation)(const TrainConfig&);  ///< what is wrong and what to do, or "" when the rule holds
};

const std::vector<ConfigRule>& config_rules();

}  // namespace skrull
