#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/schedule/timeline.h"

namespace skrull {
namespace {

/// Threads of a process come in pairs.
std::int32_t compute_thread(std::int32_t rank) {
  return 2 * rank;
}
std::int32_t communication_thread(std::int32_t rank) {
  return 2 * rank + 1;
}

class TraceWriter {
 public:
  TraceWriter(const Simulation& simulation, const Plan& plan, const TraceOptions& options)
      : simulation_(simulation), plan_(plan), options_(options), spans_(simulation.spans) {
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return order(a) < order(b); });
  }

  std::string write() {
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    name_streams();
    for (std::size_t replica = 0; replica < simulation_.micro_batches.size(); ++replica) {
      const auto& micro_batches = simulation_.micro_batches[replica];
      for (std::size_t index = 0; index < micro_batches.size(); ++index) {
        if (!micro_batches[index].empty) write_micro_batch(replica, index);
      }
    }
    write_groups();
    write_synchronisation();
    text_.append("\n]}\n");
    return std::move(text_);
  }

 private:
  /// Kernels and hops of a rank's pass over a layer are neighbours.
  static std::tuple<int, int, int, bool, int, int, double> order(const Span& span) {
    return {span.replica,          span.rank,  span.micro_batch, span.activity == Activity::hop,
            group_pass(span.pass), span.layer, span.begin};
  }

  /// With full recompute the two passes alternate layer by layer; a summary of many layers takes them together.
  static int group_pass(Pass pass) { return static_cast<int>(pass == Pass::recompute ? Pass::backward : pass); }

  bool is_detailed(const Span& span) const { return span.pass == Pass::head || span.layer < options_.detailed_layers; }

  /// Whether b belongs into the slice that a has begun: the same layer's pass, or one of the layers without detail.
  bool same_group(const Span& a, const Span& b) const {
    const bool same_stream = a.replica == b.replica && a.rank == b.rank && a.micro_batch == b.micro_batch &&
                             (a.activity == Activity::hop) == (b.activity == Activity::hop);
    if (!same_stream || is_detailed(a) != is_detailed(b)) return false;
    return is_detailed(a) ? a.pass == b.pass && a.layer == b.layer : group_pass(a.pass) == group_pass(b.pass);
  }

  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(text_.back() == '[' ? "\n" : ",\n");
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  /// A slice of a thread; `arguments` is JSON. Times in whole nanoseconds, so that slices nest whatever the rounding.
  void slice(std::int64_t process, std::int32_t thread, double begin, double end, std::string_view name,
             std::string_view arguments = "{}") {
    const std::int64_t from = std::llround(begin * 1e9);
    const std::int64_t length = std::llround(end * 1e9) - from;
    event(R"({{"ph":"X","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},"name":"{}","args":{}}})", process, thread,
          from / 1000, from % 1000, length / 1000, length % 1000, name, arguments);
  }

  void name_streams() {
    const auto replicas = static_cast<std::int64_t>(simulation_.micro_batches.size());
    const auto name_process = [&](std::int64_t process, std::string_view name) {
      event(R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"{1}"}}}})", process, name);
      event(R"({{"ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}}}})", process);
    };
    const auto name_thread = [&](std::int64_t process, std::int32_t thread, std::string_view name) {
      event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})", process, thread, name);
      event(R"({{"ph":"M","pid":{0},"tid":{1},"name":"thread_sort_index","args":{{"sort_index":{1}}}}})", process,
            thread);
    };
    for (std::int64_t replica = 0; replica < replicas; ++replica) {
      name_process(replica, fmt::format("replica {}", replica));
      for (std::int32_t rank = 0; rank < plan_.topology.context_parallel; ++rank) {
        name_thread(replica, compute_thread(rank), fmt::format("rank {}", world_rank(replica, rank)));
        name_thread(replica, communication_thread(rank), fmt::format("rank {} hops", world_rank(replica, rank)));
      }
    }
    if (simulation_.collectives.empty()) return;
    name_process(replicas, "all ranks");
    name_thread(replicas, 0, "collectives");
  }

  /// Number of a replica's rank among all ranks, as people see it.
  std::int64_t world_rank(std::int64_t replica, std::int64_t rank) const {
    return replica * plan_.topology.context_parallel + rank;
  }

  std::int64_t length_of(std::int64_t sequence) const { return plan_.lengths[static_cast<std::size_t>(sequence)]; }

  /// JSON lists of sequences and of their lengths.
  std::string sequence_arguments(const std::vector<std::int64_t>& sequences) const {
    std::vector<std::int64_t> lengths;
    std::transform(sequences.begin(), sequences.end(), std::back_inserter(lengths),
                   [&](std::int64_t sequence) { return length_of(sequence); });
    return fmt::format(R"("sequences":[{}],"lengths":[{}])", fmt::join(sequences, ","), fmt::join(lengths, ","));
  }

  void write_micro_batch(std::size_t replica, std::size_t index) {
    const SimulatedMicroBatch& micro_batch = simulation_.micro_batches[replica][index];
    for (std::size_t rank = 0; rank < micro_batch.ranks.size(); ++rank) {
      const SimulatedRank& simulated = micro_batch.ranks[rank];
      slice(static_cast<std::int64_t>(replica), compute_thread(static_cast<std::int32_t>(rank)), simulated.begin,
            simulated.end, fmt::format("micro-batch {}", index),
            fmt::format(R"({{"busy_s":{},"waiting_s":{}}})", simulated.busy(), simulated.waiting()));
    }
  }

  void write_groups() {
    for (auto first = spans_.cbegin(); first != spans_.cend();) {
      const auto last = std::find_if(first, spans_.cend(), [&](const Span& span) { return !same_group(*first, span); });
      write_group({first, last});
      first = last;
    }
  }

  void write_group(std::span<const Span> group) {
    const Span& first = group.front();
    const bool hops = first.activity == Activity::hop;
    const std::int32_t thread = hops ? communication_thread(first.rank) : compute_thread(first.rank);
    const auto [begin, end] = extent(group);
    if (!is_detailed(first)) {
      const Pass pass = first.pass == Pass::recompute ? Pass::backward : first.pass;
      slice(first.replica, thread, begin, end,
            fmt::format("layers {}-{} {}", options_.detailed_layers, simulation_.layers - 1, name_of(pass)));
      return;
    }
    if (!hops && first.pass != Pass::head) {
      slice(first.replica, thread, begin, end, fmt::format("layer {} {}", first.layer, name_of(first.pass)));
    }
    for (const Span& span : group) write_span(span, thread);
  }

  static std::pair<double, double> extent(std::span<const Span> group) {
    double begin = group.front().begin;
    double end = group.front().end;
    for (const Span& span : group) {
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end);
    }
    return {begin, end};
  }

  void write_span(const Span& span, std::int32_t thread) {
    const auto replica = static_cast<std::size_t>(span.replica);
    const auto micro_batch = static_cast<std::size_t>(span.micro_batch);
    std::string name(name_of(span.activity));
    std::string arguments =
        fmt::format(R"("micro_batch":{},"layer":{},"pass":"{}")", span.micro_batch, span.layer, name_of(span.pass));
    if (span.ring >= 0) {
      const SimulatedRing& ring =
          simulation_.micro_batches[replica][micro_batch].rings[static_cast<std::size_t>(span.ring)];
      const bool home = static_cast<std::size_t>(span.step) == ring.ranks.size();
      std::vector<std::int64_t> ranks;
      for (const int rank : ring.ranks) ranks.push_back(world_rank(span.replica, rank));
      const std::string step = home ? "home" : std::to_string(span.step);
      name = fmt::format("{} {}, ring {}", name_of(span.activity), step, fmt::join(ranks, "-"));
      arguments = fmt::format("{},{}", arguments, sequence_arguments(ring.sequences));
    } else if (span.activity == Activity::local_attention) {
      const auto& local = plan_.micro_batches[replica][micro_batch].local[static_cast<std::size_t>(span.rank)];
      arguments = fmt::format("{},{}", arguments, sequence_arguments(local));
    }
    slice(span.replica, thread, span.begin, span.end, name, fmt::format("{{{}}}", arguments));
  }

  void write_synchronisation() {
    const auto replicas = static_cast<std::int64_t>(simulation_.micro_batches.size());
    for (const CollectiveSpan& collective : simulation_.collectives) {
      const bool gather = collective.kind == CollectiveSpan::Kind::gather_parameters;
      const std::string block = collective.layer < 0 ? "embedding and head" : fmt::format("layer {}", collective.layer);
      slice(replicas, 0, collective.begin, collective.end,
            fmt::format("{} {}", gather ? "gather" : "add up gradients of", block),
            fmt::format(R"({{"micro_batch":{}}})", collective.micro_batch));
    }
    if (simulation_.gradient_sync_seconds <= 0.0) return;
    for (std::int64_t replica = 0; replica < replicas; ++replica) {
      for (std::int32_t rank = 0; rank < plan_.topology.context_parallel; ++rank) {
        slice(replica, compute_thread(rank), simulation_.schedule_seconds, simulation_.step_seconds,
              "gradient sync, exposed");
      }
    }
  }

  const Simulation& simulation_;
  const Plan& plan_;
  const TraceOptions& options_;
  std::vector<Span> spans_;  ///< by order()
  std::string text_;
};

}  // namespace

std::string timeline_trace(const Simulation& simulation, const Plan& plan, const TraceOptions& options) {
  require(simulation.options.record_spans, "timeline: the simulation has not recorded its spans");
  return TraceWriter(simulation, plan, options).write();
}

}  // namespace skrull
