#pragma once
// Plans as files, format "skrull-plan/1".

#include <filesystem>
#include <optional>
#include <string>

#include "skrull/schedule/model_shape.h"
#include "skrull/schedule/plan.h"

namespace skrull {

/// A plan with what its file also tells.
struct PlanFile {
  Plan plan;
  ModelShape model;
  double predicted_step_seconds = 0.0;  ///< the schedule's time, without gradient synchronisation
  std::optional<double> bound_seconds;  ///< lower_bound; the file also gives the gap to it, step / bound - 1
  double scheduling_seconds = 0.0;
};

/// One JSON object on one line, with a final newline. Empty micro-batches at the end of a replica are left out.
std::string plan_to_json(const PlanFile& file);

/// Writes it, atomically.
void write_plan(const std::filesystem::path& path, const PlanFile& file);

/// Reads and checks a plan file; keys that this format does not have are ignored. Throws InvalidInput with file and
/// JSON path, what was expected and what was found; a plan that is well formed and breaks a rule of validate_plan is
/// refused with that rule.
PlanFile read_plan(const std::filesystem::path& path);

/// The same from text; `name` is the file in messages.
PlanFile parse_plan(const std::string& text, const std::string& name);

}  // namespace skrull
