#include "skrull/train/step_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"

namespace skrull {
namespace {

enum Thread : std::int64_t { compute_thread = 0, communication_thread = 1 };

/// What a rank holds of one micro-batch, as arguments of its events.
struct SequenceArguments {
  OrderedJson local = OrderedJson::array();
  OrderedJson of_rings = OrderedJson::array();
};

OrderedJson describe(const GlobalBatch& batch, std::int64_t sequence) {
  const auto index = static_cast<std::size_t>(sequence);
  return {{"sample", batch.samples.at(index)}, {"tokens", batch.lengths.at(index)}};
}

SequenceArguments sequences_of(const StepBatches& batches, const RankGrid& grid, std::int64_t micro_batch) {
  SequenceArguments result;
  if (micro_batch < 0) return result;
  const auto replica = static_cast<std::size_t>(grid.data_rank);
  const PlannedMicroBatch& planned = batches.plan().micro_batches.at(replica).at(static_cast<std::size_t>(micro_batch));
  for (const std::int64_t sequence : planned.local.at(static_cast<std::size_t>(grid.context_rank))) {
    result.local.push_back(describe(batches.batch(), sequence));
  }
  for (const DistributedSequence& distributed : planned.distributed) {
    const auto& ranks = distributed.ranks;
    if (std::find(ranks.begin(), ranks.end(), grid.context_rank) == ranks.end()) continue;
    OrderedJson one = describe(batches.batch(), distributed.sequence);
    one["ring"] = ranks;
    result.of_rings.push_back(std::move(one));
  }
  return result;
}

/// One "complete" event. Microseconds, to the nanosecond.
OrderedJson event_of(const TimelineSpan& span, double zero, std::int64_t step, int rank,
                     const SequenceArguments& sequences) {
  const SpanLabel& label = span.label;
  const auto microseconds = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  OrderedJson arguments = {{"step", step}};
  const auto add = [&](const char* key, std::int64_t number) {
    if (number >= 0) arguments[key] = number;
  };
  add("micro_batch", span.micro_batch);
  add("layer", label.layer);
  add("hop", label.hop);
  if (label.sequences == SpanSequences::local) arguments["sequences"] = sequences.local;
  if (label.sequences == SpanSequences::of_rings) arguments["sequences"] = sequences.of_rings;
  const char* category = span.kind == SpanKind::compute ? "compute"
                         : span.kind == SpanKind::wait  ? "wait"
                                                        : "communication";
  return {
      {"ph", "X"},
      {"pid", rank},
      {"tid", static_cast<std::int64_t>(span.kind == SpanKind::communication ? communication_thread : compute_thread)},
      {"ts", microseconds(span.begin - zero)},
      {"dur", microseconds(span.seconds())},
      {"name", label.hop > 0 ? fmt::format("{}, hop {}", label.name, label.hop) : label.name},
      {"cat", category},
      {"args", std::move(arguments)}};
}

OrderedJson name_event(int rank, const char* what, std::int64_t thread, const std::string& name) {
  return {{"ph", "M"}, {"pid", rank}, {"tid", thread}, {"name", what}, {"args", {{"name", name}}}};
}

void append(std::string& events, const OrderedJson& event) {
  if (!events.empty()) events += ",\n";
  events += event.dump();
}

}  // namespace

StepTrace::StepTrace(const TrainConfig& config, std::filesystem::path file, std::int64_t done, std::int64_t steps,
                     RankSession& rank)
    : file_(std::move(file)), rank_(rank) {
  if (config.trace) {
    first_step_ = std::min(done + config.trace_first_step, steps);
    end_step_ = std::min(first_step_ + config.trace_steps, steps + 1);
    const RankGrid& grid = rank.grid();
    append(events_, name_event(grid.rank(), "process_name", compute_thread,
                               fmt::format("rank {} (replica {})", grid.rank(), grid.data_rank)));
    append(events_, name_event(grid.rank(), "thread_name", compute_thread, "compute"));
    append(events_, name_event(grid.rank(), "thread_name", communication_thread, "communication"));
  }
}

void StepTrace::begin_step(std::int64_t step) {
  rank_.device().timeline().set_detail(is_traced(step) ? TimelineDetail::all : TimelineDetail::communication_and_waits);
}

void StepTrace::end_step(std::int64_t step, const std::vector<TimelineSpan>& spans, const StepBatches& batches) {
  if (!is_traced(step)) return;
  if (!has_zero_) {
    double first = std::numeric_limits<double>::max();
    for (const TimelineSpan& span : spans) first = std::min(first, span.begin);
    zero_ = rank_.one_host() ? -rank_.control().max(-first) : first;
    has_zero_ = true;
  }
  std::int64_t micro_batch = -1;
  SequenceArguments sequences;
  for (const TimelineSpan& span : spans) {
    if (std::exchange(micro_batch, span.micro_batch) != span.micro_batch) {
      sequences = sequences_of(batches, rank_.grid(), micro_batch);
    }
    append(events_, event_of(span, zero_, step, rank_.grid().rank(), sequences));
  }
  if (step + 1 == end_step_) write();
}

void StepTrace::write() {
  std::string all = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (int rank = 0; rank < rank_.control().size(); ++rank) {
    const std::string events = rank_.control().broadcast(events_, rank);
    if (rank > 0) all += ",\n";
    all += events;
  }
  all += "\n]}\n";
  events_.clear();
  if (rank_.control().rank() != 0) return;
  try {
    write_file_atomically(file_, all);
    log::info("wrote {}: open it in ui.perfetto.dev", file_.string());
  } catch (const std::exception& error) {
    log::warning("the trace can't be written: {}", error.what());
  }
}

}  // namespace skrull
