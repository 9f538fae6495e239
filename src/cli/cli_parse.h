#pragma once
// CLI11 with this program's conventions.

#include <CLI/CLI.hpp>

#include "commands.h"

namespace skrull::cli {

/// Parses the arguments of one sub-command. False after printing --help. Throws InvalidInput with the reason otherwise.
bool parse(CLI::App& app, const Arguments& arguments);

}  // namespace skrull::cli
