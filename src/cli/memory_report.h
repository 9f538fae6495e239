#pragma once
// What `skrull plan --memory` says: a table for people, JSON for machines.

#include "skrull/core/json.h"
#include "skrull/train/planning.h"

namespace skrull::cli {

void report_memory_forecast(const MemoryForecast& forecast);
OrderedJson forecast_to_result(const MemoryForecast& forecast);

}  // namespace skrull::cli
