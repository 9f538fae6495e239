#pragma once
// The architectures of the Qwen2.5 models, by name: for plans and measurements without a model folder.

#include <string>

#include "skrull/model/qwen2_config.h"

namespace skrull {

/// Of a name: "0.5b", "1.5b", "3b", "7b", "14b", "32b" or "72b", as Qwen2.5's config.json files have them. Anything
/// else is a folder with a config.json. Throws InvalidInput for a folder that is none, naming the names.
Qwen2Config find_model(const std::string& name_or_folder);

}  // namespace skrull
