#include "report.h"

#include <string>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"

namespace skrull {

void report_model(const Qwen2Config& model, const TrainConfig& config) {
  log::info(
      "model: {}, {} parameters{}: {} layers, hidden {}, {} heads over {} key-value heads of {}, MLP {}, vocabulary "
      "{}{}",
      config.model_name_or_path.string(), format_count(model.parameter_count()),
      config.init == Initialization::random ? " drawn at random" : "", model.num_layers, model.hidden_size,
      model.num_heads, model.num_kv_heads, model.head_dim, model.intermediate_size, model.vocab_size,
      model.tie_word_embeddings ? " (tied head)" : "");
  log::info("precision: {} compute, fp32 master weights and sums; recompute {}", name_of(config.compute_dtype),
            name_of(config.gradient_checkpointing));
}

void report_disk_space(const std::filesystem::path& folder, std::int64_t model_bytes) {
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(folder, unknown);
  if (unknown || space.available >= static_cast<std::uintmax_t>(model_bytes)) return;
  log::warning("{}: the disk has {} free, the model to be saved takes about {}; make room before the run ends",
               folder.string(), format_bytes(static_cast<std::int64_t>(space.available)), format_bytes(model_bytes));
}

void report_memory(const Device& device, const Qwen2Config& model, MemoryOptions options, std::int64_t tokens) {
  log::info("planned memory of a rank:");
  for (const auto& [category, bytes] : device.memory().by_category()) {
    if (bytes > 0) log::info("  {:<20} {:>12}", category, format_bytes(bytes));
  }
  log::info("  {:<20} {:>12} ({} free)", "total", format_bytes(device.memory().current_bytes()),
            format_bytes(device.free_bytes()));
  if (const std::int64_t on_host = device.host_memory().current_bytes(); on_host > 0) {
    log::info("  and in host memory, for its optimizer: {}", format_bytes(on_host));
  }
  if (options.world_size == 1) return;
  std::vector<std::string> stages;
  for (options.zero_stage = 0; options.zero_stage <= 3; ++options.zero_stage) {
    stages.push_back(fmt::format("{} at stage {}", format_bytes(MemoryModel(model.shape(), options).bytes(tokens)),
                                 options.zero_stage));
  }
  log::info("  by zero_stage: {}", fmt::join(stages, ", "));
}

}  // namespace skrull
