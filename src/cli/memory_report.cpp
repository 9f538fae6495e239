#include "memory_report.h"

#include <algorithm>

#include "skrull/core/log.h"
#include "skrull/core/text.h"

namespace skrull::cli {
namespace {

int ranks_of(const MemoryForecast& forecast) {
  return forecast.topology.data_parallel * forecast.topology.context_parallel;
}

/// Bytes of these categories together.
std::int64_t bytes_of(const MemoryLayout& layout, std::initializer_list<std::string_view> names) {
  std::int64_t bytes = 0;
  for (const MemoryCategory& category : layout.categories) {
    if (std::find(names.begin(), names.end(), category.name) != names.end()) bytes += category.bytes;
  }
  return bytes;
}

}  // namespace

void report_memory_forecast(const MemoryForecast& forecast) {
  log::info("memory of each of {} ranks (data parallel {} x context parallel {}) that hold {} tokens in a micro-batch:",
            ranks_of(forecast), forecast.topology.data_parallel, forecast.topology.context_parallel,
            format_count(forecast.tokens));
  log::info("{:>5} {:<10} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>13}", "stage", "recompute", "parameters",
            "gradients", "optimizer", "activations", "loss head", "rings", "total", "tokens fit");
  std::int64_t most_on_host = 0;
  for (const MemoryLayout& layout : forecast.layouts) {
    log::info("{:>5} {:<10} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>13}", layout.zero_stage,
              name_of(layout.recompute), format_bytes(bytes_of(layout, {"parameters", "gathered parameters"})),
              format_bytes(bytes_of(layout, {"gradients", "gradient buffers"})),
              format_bytes(bytes_of(layout, {"optimizer state"})),
              format_bytes(bytes_of(layout, {"activations", "backward buffers"})),
              format_bytes(bytes_of(layout, {"loss head"})), format_bytes(bytes_of(layout, {"ring buffers"})),
              format_bytes(layout.total_bytes), layout.most_tokens > 0 ? format_count(layout.most_tokens) : "none");
    most_on_host = std::max(most_on_host, layout.host_bytes);
  }
  if (most_on_host > 0) {
    const auto on_host = [&](int stage) {
      const auto layout = std::find_if(forecast.layouts.begin(), forecast.layouts.end(),
                                       [&](const MemoryLayout& one) { return one.zero_stage == stage; });
      return format_bytes(layout->host_bytes);
    };
    log::info("and in host memory, for its optimizer: {} at stage 0, {} from stage 1 on", on_host(0), on_host(1));
  }
  log::info("tokens fit: of a micro-batch on one rank, with {} of device memory",
            format_bytes(forecast.device_memory_bytes));
}

OrderedJson forecast_to_result(const MemoryForecast& forecast) {
  OrderedJson layouts = OrderedJson::array();
  for (const MemoryLayout& layout : forecast.layouts) {
    OrderedJson categories = OrderedJson::object();
    for (const MemoryCategory& category : layout.categories) categories[category.name] = category.bytes;
    layouts.push_back({{"zero_stage", layout.zero_stage},
                       {"gradient_checkpointing", name_of(layout.recompute)},
                       {"bytes_by_category", std::move(categories)},
                       {"total_bytes", layout.total_bytes},
                       {"host_bytes", layout.host_bytes},
                       {"most_tokens", layout.most_tokens}});
  }
  return {{"command", "plan"},
          {"memory_forecast", true},
          {"ranks", ranks_of(forecast)},
          {"context_parallel", forecast.topology.context_parallel},
          {"tokens", forecast.tokens},
          {"device_bytes", forecast.device_memory_bytes},
          {"layouts", std::move(layouts)}};
}

}  // namespace skrull::cli
