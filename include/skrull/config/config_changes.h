#pragma once
// What is different between the config of a run and the one it is to continue under.

#include <string>
#include <vector>

#include "skrull/config/train_config.h"

namespace skrull {

struct ConfigChange {
  std::string name;  ///< dotted
  std::string before;
  std::string now;                ///< both as JSON
  bool allowed_on_resume = true;  ///< false: decides the order of the data or the loss
};

/// Options whose value in `config` is not that of `saved`, the text of an earlier config_to_json(). Options that
/// `saved` lacks, of an older version, had their default. Throws InvalidInput, naming `origin`, when `saved` is no JSON
/// object.
std::vector<ConfigChange> changes_since(const std::string& saved, const std::string& origin, const TrainConfig& config);

}  // namespace skrull
