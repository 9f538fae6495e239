#include "skrull/train/metrics.h"

#include <cmath>

#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

/// JSON has no infinities: a non-finite number is written as null.
OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& file) : path_(file), stream_(file, std::ios::app) {
  if (!stream_) throw_run_failure("{}: can't be opened for writing", file.string());
}

void MetricsFile::append(const StepMetrics& metrics) {
  const OrderedJson row = {
      {"step", metrics.step},
      {"epoch", number(metrics.epoch)},
      {"loss", number(metrics.loss)},
      {"grad_norm", number(metrics.grad_norm)},
      {"learning_rate", number(metrics.learning_rate)},
      {"tokens", metrics.tokens},
      {"trained_tokens", metrics.trained_tokens},
      {"tokens_per_second", number(metrics.tokens_per_second)},
      {"trained_tokens_per_second", number(metrics.trained_tokens_per_second)},
      {"step_seconds", number(metrics.step_seconds)},
      {"predicted_step_seconds", number(metrics.predicted_step_seconds)},
      {"schedule_seconds", number(metrics.schedule_seconds)},
      {"schedule_wait_seconds", number(metrics.schedule_wait_seconds)},
      {"comm_seconds", number(metrics.comm_seconds)},
      {"comm_exposed_seconds", number(metrics.comm_exposed_seconds)},
      {"imbalance", number(metrics.imbalance)},
      {"local_tokens", metrics.local_tokens},
      {"ring_tokens", metrics.ring_tokens},
      {"mfu", number(metrics.mfu)},
      {"peak_memory_bytes", metrics.peak_memory_bytes},
      {"peak_device_memory_bytes", metrics.peak_device_memory_bytes},
      {"eta_seconds", number(metrics.eta_seconds)},
      {"skipped_steps", metrics.skipped_steps},
  };
  append_line(row.dump());
}

void MetricsFile::append(const EvalMetrics& metrics) {
  const OrderedJson row = {
      {"step", metrics.step},
      {"epoch", number(metrics.epoch)},
      {"eval_loss", number(metrics.loss)},
      {"eval_perplexity", number(metrics.perplexity)},
      {"eval_tokens", metrics.tokens},
      {"eval_seconds", number(metrics.seconds)},
  };
  append_line(row.dump());
}

void MetricsFile::append_line(const std::string& line) {
  stream_ << line << '\n' << std::flush;
  if (!stream_ && !failed_) {
    failed_ = true;
    log::warning("{}: a row can't be written (disk full?); the run goes on without it", path_.string());
  }
  stream_.clear();
}

std::string describe(const StepMetrics& metrics, std::int64_t total_steps) {
  return fmt::format(
      "step {}/{} | epoch {:.2f} | loss {:.4f} | grad norm {:.3f} | lr {:.2e} | {} tokens/s | mfu {:.1f}% | eta {}{}",
      metrics.step, total_steps, metrics.epoch, metrics.loss, metrics.grad_norm, metrics.learning_rate,
      format_count(std::llround(metrics.tokens_per_second)), 100 * metrics.mfu, format_duration(metrics.eta_seconds),
      metrics.skipped ? " | SKIPPED" : "");
}

std::string describe(const EvalMetrics& metrics) {
  return fmt::format("eval after step {} | loss {:.4f} | perplexity {:.3f} | {} tokens | {}", metrics.step,
                     metrics.loss, metrics.perplexity, format_count(metrics.tokens), format_duration(metrics.seconds));
}

}  // namespace skrull
