#pragma once
// Texts made from the option table: the echo of a config, --help, the JSON Schema, the Markdown reference.

#include <cstddef>
#include <string>

#include "skrull/config/train_config.h"

namespace skrull {

/// The resolved config as JSON with every option (args.json). Read back with the same `required`, it gives the same
/// config.
std::string config_to_json(const TrainConfig& config);

/// The options for `skrull train --help`: grouped, with type, default and help, wrapped at `width` columns.
std::string config_help(std::size_t width = 100);

/// JSON Schema (draft 2020-12) of a training config file.
std::string config_schema();

/// The reference in Markdown (docs/configuration.md).
std::string config_markdown();

}  // namespace skrull
