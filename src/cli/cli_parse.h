#pragma once
// CLI11 with this program's conventions.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "commands.h"
#include "skrull/config/choices.h"
#include "skrull/core/dtype.h"
#include "skrull/device/device.h"

namespace skrull::cli {

/// A validator for counts.
inline CLI::Validator at_least_one() {
  return {[](const std::string& text) -> std::string {
            std::int64_t value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            return is_number && value >= 1 ? "" : "expected a whole number of at least 1, got " + text;
          },
          "INT>=1"};
}

/// --compute-dtype float32|bfloat16. `dtype` holds the default and receives the choice; must outlive the parsing.
void add_compute_dtype(CLI::App& app, DType& dtype);

/// --device auto|cpu|cuda, likewise.
void add_device(CLI::App& app, DeviceChoice& device);

/// --attention-engine auto|native|cudnn and --nondeterministic-attention, likewise.
void add_attention(CLI::App& app, AttentionChoice& attention);

/// Policies by name, of a list with commas; "all" means every one.
std::vector<std::string> parse_policies(const std::string& list);

/// Parses the arguments of one sub-command. False after printing --help. Throws InvalidInput with the reason otherwise.
bool parse(CLI::App& app, const Arguments& arguments);

}  // namespace skrull::cli
