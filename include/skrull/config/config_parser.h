#pragma once
// From a JSON file and command-line arguments to a TrainConfig, with all problems reported at once.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "skrull/config/train_config.h"

namespace skrull {

/// One `key=value` of the command line; the value is still text and is read by the option's type.
struct ConfigOverride {
  std::string key;
  std::string value;

  bool operator==(const ConfigOverride&) const = default;
};

/// Where a config comes from.
struct ConfigSource {
  std::optional<std::filesystem::path> file;
  std::vector<ConfigOverride> overrides;  ///< applied after the file, in order: the last one wins
  std::vector<std::string> problems;      ///< arguments that could not be understood; parse_config reports them
};

/// Separates `[CONFIG.json] [key=value | --key=value | --key value | --switch | --no_switch]...` (the arguments after
/// the sub-command, in any order) into the file and the overrides. `-` and `_` are the same in key names. Pure; never
/// throws on bad arguments: they are returned as problems, so that parse_config can report everything together.
ConfigSource read_arguments(const std::vector<std::string>& arguments);

/// The options without which training can't start.
std::vector<std::string> required_for_training();

/// Reads, checks and resolves a config. `required`: the dotted names of the options that must be given; commands other
/// than `train` ask for fewer. Throws one InvalidInput that lists every problem (unreadable file, key given twice,
/// unknown key with the nearest known one, wrong type, out of range, contradiction, missing), each with its file (or
/// "command line") and its dotted path.
TrainConfig parse_config(const ConfigSource& source,
                         const std::vector<std::string>& required = required_for_training());

}  // namespace skrull
