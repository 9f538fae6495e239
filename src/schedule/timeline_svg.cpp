#include <algorithm>
#include <numeric>
#include <optional>

#include "skrull/core/text.h"
#include "skrull/schedule/timeline.h"
#include "svg_canvas.h"

namespace skrull {
namespace {

/// Pixels.
constexpr double left_margin = 74.0;
constexpr double plot_width = 1140.0;
constexpr double right_margin = 26.0;
constexpr double header_height = 92.0;
constexpr double replica_header = 24.0;
constexpr double replica_gap = 10.0;
constexpr double axis_height = 46.0;
constexpr double close_up_header = 60.0;
constexpr double close_up_gap = 40.0;  ///< between forward and backward
/// Of one pass over a layer, from which on kernels are drawn one by one.
constexpr double detailed_pass_width = 40.0;

/// One layer of one micro-batch, drawn kernel by kernel where the picture of the step is too coarse for it.
struct CloseUp {
  std::size_t replica = 0;
  std::size_t micro_batch = 0;
  std::int32_t layer = 0;
  std::vector<Span> spans;  ///< by lane
  double forward_begin = 0.0;
  double forward_end = 0.0;
  double backward_begin = 0.0;
  double backward_end = 0.0;

  double seconds() const { return forward_end - forward_begin + backward_end - backward_begin; }
};

/// The middle layer of the longest micro-batch, of those with rings if there are any.
std::optional<CloseUp> choose_close_up(const Simulation& simulation) {
  CloseUp result;
  std::pair<bool, double> longest{false, 0.0};
  for (std::size_t replica = 0; replica < simulation.micro_batches.size(); ++replica) {
    for (std::size_t index = 0; index < simulation.micro_batches[replica].size(); ++index) {
      const SimulatedMicroBatch& micro_batch = simulation.micro_batches[replica][index];
      const std::pair<bool, double> key{!micro_batch.rings.empty(), micro_batch.end - micro_batch.begin};
      if (key <= longest) continue;
      longest = key;
      result.replica = replica;
      result.micro_batch = index;
    }
  }
  result.layer = static_cast<std::int32_t>(simulation.layers / 2);
  for (const Span& span : simulation.spans) {
    if (static_cast<std::size_t>(span.replica) != result.replica) continue;
    if (static_cast<std::size_t>(span.micro_batch) != result.micro_batch) continue;
    result.spans.push_back(span);
    if (span.pass == Pass::head || span.layer != result.layer) continue;
    const bool forward = span.pass == Pass::forward;
    double& begin = forward ? result.forward_begin : result.backward_begin;
    double& end = forward ? result.forward_end : result.backward_end;
    begin = end == 0.0 ? span.begin : std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  if (result.seconds() <= 0.0) return std::nullopt;
  sort_by_lane(result.spans);
  return result;
}

class SvgTimeline {
 public:
  SvgTimeline(const Simulation& simulation, const Plan& plan)
      : simulation_(simulation),
        plan_(plan),
        ranks_(static_cast<std::size_t>(plan.topology.context_parallel)),
        canvas_(lane_size(ranks_ * simulation.micro_batches.size())) {
    replica_height_ = replica_header + lanes_height() + replica_gap;
    const double step = simulation.step_seconds;
    scale_ = {left_margin, 0.0, step > 0.0 ? plot_width / step : 0.0};
    if (simulation.spans.empty()) return;
    const auto passes = static_cast<double>(2 * simulation.layers * plan.micro_batch_count());
    if (plot_width / passes >= detailed_pass_width) {
      spans_ = simulation.spans;
      sort_by_lane(spans_);
    } else {
      close_up_ = choose_close_up(simulation);
    }
  }

  std::string draw() {
    const double lanes_end = header_height + replica_height_ * static_cast<double>(simulation_.micro_batches.size());
    const double close_up_height = close_up_ ? close_up_header + lanes_height() + axis_height : 0.0;
    canvas_.open(left_margin + plot_width + right_margin, lanes_end + axis_height + close_up_height, title());
    draw_header();
    canvas_.axis(scale_, simulation_.step_seconds, header_height, lanes_end, 12, simulation_.step_seconds);
    for (std::size_t replica = 0; replica < simulation_.micro_batches.size(); ++replica) draw_replica(replica);
    if (close_up_) draw_close_up(*close_up_, lanes_end + axis_height);
    canvas_.close();
    return canvas_.take();
  }

 private:
  double lanes_height() const { return static_cast<double>(ranks_) * canvas_.lane().height(); }

  std::string title() const {
    return fmt::format("{}: a step of {} on {} x {} ranks", plan_.policy, format_time(simulation_.step_seconds),
                       plan_.topology.data_parallel, plan_.topology.context_parallel);
  }

  void draw_header() {
    canvas_.out("<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n", left_margin, escaped(title()));
    const auto tokens = std::accumulate(plan_.lengths.begin(), plan_.lengths.end(), std::int64_t{0});
    const std::int64_t micro_batches = plan_.micro_batch_count();
    canvas_.out(
        "<text class=\"note\" x=\"{}\" y=\"46\">{} sequences, {} tokens, {} micro-batch{}; ranks compute {:.1f}% of "
        "the time; ZeRO stage {}; {}</text>\n",
        left_margin, plan_.lengths.size(), format_count(tokens), micro_batches, micro_batches == 1 ? "" : "es",
        100.0 * simulation_.busy_share(), simulation_.options.zero_stage,
        !spans_.empty() ? "every kernel where it runs" : "a micro-batch's time by kind, not in its order");
    canvas_.legend(left_margin, 62.0);
  }

  void draw_replica(std::size_t replica) {
    const auto& micro_batches = simulation_.micro_batches[replica];
    const double top = header_height + replica_height_ * static_cast<double>(replica);
    canvas_.out("<g class=\"replica-lanes\">\n<text class=\"replica\" x=\"10\" y=\"{:.1f}\">replica {}</text>\n",
                top + 16.0, replica);
    for (std::size_t index = 0; index < micro_batches.size(); ++index) {
      draw_micro_batch_name(micro_batches[index], index, top);
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      draw_lane(replica, rank, top + replica_header + static_cast<double>(rank) * canvas_.lane().height());
    }
    for (const SimulatedMicroBatch& micro_batch : micro_batches) {
      if (!micro_batch.empty) draw_boundary(micro_batch, top + replica_header);
    }
    canvas_.out("</g>\n");
  }

  void draw_micro_batch_name(const SimulatedMicroBatch& micro_batch, std::size_t index, double top) {
    const double width = (micro_batch.end - micro_batch.begin) * scale_.pixels_per_second;
    if (micro_batch.empty || width < 14.0) return;
    canvas_.out("<text x=\"{:.2f}\" y=\"{:.1f}\">{}{}</text>\n", scale_.x(micro_batch.begin) + 4.0, top + 17.0,
                width >= 90.0 ? "micro-batch " : "", index);
  }

  /// A line where the micro-batch begins: through all lanes, or in steps where ranks don't wait for each other.
  void draw_boundary(const SimulatedMicroBatch& micro_batch, double top) {
    const double first = micro_batch.ranks.front().begin;
    const bool together = std::all_of(micro_batch.ranks.begin(), micro_batch.ranks.end(),
                                      [&](const SimulatedRank& rank) { return rank.begin == first; });
    std::string path;
    if (together) {
      path = fmt::format(
          "M{:.2f} {:.1f}V{:.1f}", scale_.x(first), top - 14.0,
          top + static_cast<double>(micro_batch.ranks.size()) * canvas_.lane().height() - canvas_.lane().gap + 2.0);
    } else {
      for (std::size_t rank = 0; rank < micro_batch.ranks.size(); ++rank) {
        const double lane = top + static_cast<double>(rank) * canvas_.lane().height();
        fmt::format_to(std::back_inserter(path), "M{:.2f} {:.1f}V{:.1f}", scale_.x(micro_batch.ranks[rank].begin),
                       lane - 2.0, lane + canvas_.lane().height() - canvas_.lane().gap + 2.0);
      }
    }
    canvas_.out("<path class=\"boundary\" d=\"{}\"/>\n", path);
  }

  void draw_lane(std::size_t replica, std::size_t rank, double top) {
    canvas_.out("<g class=\"lane\">\n");
    canvas_.lane_name(left_margin, top, rank);
    double drawn = 0.0;
    for (std::size_t index = 0; index < simulation_.micro_batches[replica].size(); ++index) {
      const SimulatedMicroBatch& micro_batch = simulation_.micro_batches[replica][index];
      const SimulatedRank& simulated = micro_batch.ranks[rank];
      if (micro_batch.empty) continue;
      const std::string where = fmt::format("replica {}, rank {}, micro-batch {}", replica, rank, index);
      canvas_.bar(Bar::idle, scale_, drawn, simulated.begin, top, where);
      if (!spans_.empty()) {
        canvas_.kernels(lane_of(spans_, replica, index, rank), scale_, simulated.begin, simulated.end, top, where);
      } else {
        draw_sums(simulated, top, where);
      }
      drawn = simulated.end;
    }
    const std::string where = fmt::format("replica {}, rank {}", replica, rank);
    canvas_.bar(Bar::idle, scale_, drawn, simulation_.schedule_seconds, top, where);
    canvas_.bar(Bar::gradient_sync, scale_, simulation_.schedule_seconds, simulation_.step_seconds, top, where);
    canvas_.out("</g>\n");
  }

  /// One bar of a rank's time in a micro-batch, by kind. Its hops begin where its matrix products end, as in each
  /// layer.
  void draw_sums(const SimulatedRank& rank, double top, const std::string& where) {
    double at = rank.begin;
    const auto next = [&](Bar kind, double seconds) {
      canvas_.bar(kind, scale_, at, at + seconds, top, where);
      at += seconds;
    };
    next(Bar::fixed, rank.of(Activity::fixed));
    next(Bar::linear, rank.of(Activity::linear) + rank.of(Activity::head));
    canvas_.bar(Bar::hop, scale_, at, at + rank.of(Activity::hop), top, where);
    next(Bar::local_attention, rank.of(Activity::local_attention));
    next(Bar::ring_attention, rank.of(Activity::ring_attention));
    next(Bar::waiting, rank.end - at);
  }

  void draw_close_up(const CloseUp& close_up, double top) {
    canvas_.out(
        "<g class=\"close-up\">\n<text class=\"replica\" x=\"{}\" y=\"{:.1f}\">Close-up: layer {} of replica {}, "
        "micro-batch {}</text>\n",
        left_margin, top + 24.0, close_up.layer, close_up.replica, close_up.micro_batch);
    const double pixels_per_second = (plot_width - close_up_gap) / close_up.seconds();
    const double forward_width = (close_up.forward_end - close_up.forward_begin) * pixels_per_second;
    draw_window(close_up, "forward", {left_margin, close_up.forward_begin, pixels_per_second}, close_up.forward_end,
                top);
    const bool again = simulation_.forward_passes > 1;
    draw_window(close_up, again ? "forward again, backward" : "backward",
                {left_margin + forward_width + close_up_gap, close_up.backward_begin, pixels_per_second},
                close_up.backward_end, top);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      canvas_.lane_name(left_margin, top + close_up_header + static_cast<double>(rank) * canvas_.lane().height(), rank);
    }
    canvas_.out("</g>\n");
  }

  /// From the scale's start to `end`.
  void draw_window(const CloseUp& close_up, std::string_view name, const TimeScale& scale, double end, double top) {
    const double lanes = top + close_up_header;
    const double width = (end - scale.from) * scale.pixels_per_second;
    canvas_.out("<text x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", scale.left, lanes - 8.0, name);
    canvas_.axis(scale, end - scale.from, lanes - 4.0, lanes + lanes_height(),
                 std::max(1, static_cast<int>(width / 90.0)), close_up.seconds());
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      canvas_.kernels(lane_of(close_up.spans, close_up.replica, close_up.micro_batch, rank), scale, scale.from, end,
                      lanes + static_cast<double>(rank) * canvas_.lane().height(),
                      fmt::format("replica {}, rank {}, micro-batch {}", close_up.replica, rank, close_up.micro_batch));
    }
  }

  const Simulation& simulation_;
  const Plan& plan_;
  std::size_t ranks_;
  SvgCanvas canvas_;
  double replica_height_ = 0.0;
  TimeScale scale_;
  std::vector<Span> spans_;  ///< by lane; empty where the step is drawn by sums
  std::optional<CloseUp> close_up_;
};

}  // namespace

std::string timeline_svg(const Simulation& simulation, const Plan& plan) {
  return SvgTimeline(simulation, plan).draw();
}

}  // namespace skrull
