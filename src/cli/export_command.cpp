// skrull export: a checkpoint to a plain Hugging Face folder.

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli_parse.h"
#include "commands.h"
#include "skrull/config/choices.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/model/model_io.h"
#include "skrull/train/checkpoint_state.h"

namespace skrull::cli {
namespace {
namespace fs = std::filesystem;

constexpr const char* as_stored = "auto";

struct ExportArguments {
  std::string source;
  std::string output;
  std::string dtype = as_stored;
  std::int64_t shard_bytes = default_shard_bytes;
  bool overwrite = false;
};

/// A size such as people write for shards: 5GB, 500MB, 2GiB, or bytes.
std::int64_t parse_size(const std::string& text) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  constexpr std::pair<const char*, double> units[] = {{"", 1},     {"B", 1},        {"KB", 1e3},     {"MB", 1e6},
                                                      {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  for (const auto& [name, factor] : units) {
    const double bytes = value * factor;
    if (unit == name && used > 0 && bytes >= 1 && bytes < 0x1p62) return static_cast<std::int64_t>(bytes);
  }
  throw_invalid_input("skrull export: --shard-size: expected a size such as 5GB, 500MB or 2GiB, got \"{}\"", text);
}

std::optional<DType> parse_dtype(const std::string& name) {
  for (const Choice<DType>& choice : compute_dtypes) {
    if (choice.name == name) return choice.value;
  }
  return std::nullopt;
}

/// Masters are read where the checkpoint has them: float32 is then exact.
std::vector<std::vector<float>> read_blocks(const fs::path& folder, const ParameterTable& table, bool has_optimizer) {
  std::vector<std::vector<float>> blocks;
  blocks.reserve(static_cast<std::size_t>(table.block_count()));
  for (int block = 0; block < table.block_count(); ++block) {
    blocks.emplace_back(static_cast<std::size_t>(table.block_elements(block)));
  }
  load_parameters(folder, table, [&](int block) {
    auto& values = blocks.at(static_cast<std::size_t>(block));
    return TensorView(values.data(), DType::float32, 1, table.block_elements(block));
  });
  if (!has_optimizer) return blocks;
  const OptimizerShards shards(folder);
  for (const ParameterSpec& parameter : table.parameters()) {
    if (!shards.holds(parameter, OptimizerShards::State::master)) continue;
    float* values = blocks.at(static_cast<std::size_t>(parameter.block)).data() + parameter.offset;
    shards.read(parameter, OptimizerShards::State::master, 0, {values, static_cast<std::size_t>(parameter.elements())});
  }
  return blocks;
}

/// A damaged checkpoint must not become a model. A folder without a manifest is a model folder as any.
bool check_source(const fs::path& source) {
  if (!fs::exists(source / manifest_file)) return false;
  const Manifest manifest = read_manifest(source);
  for (const FileRecord& record : manifest.files) {
    const std::string problem = damage_of(source, record);
    if (!problem.empty()) throw_invalid_input("{}; choose another checkpoint", problem);
  }
  return manifest.resumable;
}

void check_output(const ExportArguments& arguments) {
  std::error_code unknown;
  if (fs::equivalent(arguments.output, arguments.source, unknown)) {
    throw_invalid_input("skrull export: --output {} is the checkpoint itself; choose another folder", arguments.output);
  }
  if (arguments.overwrite || !fs::exists(arguments.output)) return;
  if (fs::is_directory(arguments.output) && fs::is_empty(arguments.output)) return;
  throw_invalid_input("skrull export: --output {} is not an empty folder; choose another one, or --overwrite",
                      arguments.output);
}

void add_options(CLI::App& app, ExportArguments& arguments) {
  app.add_option("checkpoint", arguments.source, "a checkpoint, or any model folder")->required();
  app.add_option("--output", arguments.output, "the folder to write")->required();
  app.add_option("--dtype", arguments.dtype, "auto (as in the checkpoint), float32 or bfloat16")
      ->check(CLI::IsMember({as_stored, "float32", "bfloat16"}))
      ->default_str(as_stored);
  app.add_option_function<std::string>(
         "--shard-size", [&arguments](const std::string& text) { arguments.shard_bytes = parse_size(text); },
         "largest file of weights")
      ->default_str("5GB");
  app.add_flag("--overwrite", arguments.overwrite, "write into a folder that is not empty");
}

}  // namespace

int export_model(const Arguments& arguments) {
  CLI::App app("Writes the model of a checkpoint as a plain Hugging Face folder.", "skrull export");
  ExportArguments parsed;
  add_options(app, parsed);
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  check_output(parsed);
  const bool has_optimizer = check_source(parsed.source);
  const ParameterTable table(load_qwen2_config(parsed.source));
  std::vector<std::vector<float>> blocks = read_blocks(parsed.source, table, has_optimizer);
  const BlockOnHost block = [&](int index) {
    return TensorView(blocks.at(static_cast<std::size_t>(index)).data(), DType::float32, 1,
                      table.block_elements(index));
  };
  save_model_folder(parsed.output, parsed.source, table, block, parse_dtype(parsed.dtype), {}, {}, parsed.shard_bytes);
  log::info("wrote {} to {}", parsed.source, parsed.output);
  std::printf("%s\n", OrderedJson{{"output", parsed.output}, {"parameters", table.total_elements()}}.dump().c_str());
  return static_cast<int>(ExitCode::done);
}

}  // namespace skrull::cli
