#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "skrull/core/text.h"
#include "skrull/schedule/timeline.h"

namespace skrull {
namespace {

/// What a bar can mean. The order is that of the legend.
enum class Bar { linear, fixed, local_attention, ring_attention, waiting, idle, gradient_sync, hop };

struct BarStyle {
  Bar bar;
  std::string_view css_class;
  std::string_view legend;
};

constexpr std::array bar_styles{
    BarStyle{Bar::linear, "linear", "linear layers, head"},
    BarStyle{Bar::fixed, "fixed", "fixed costs"},
    BarStyle{Bar::local_attention, "local", "local attention"},
    BarStyle{Bar::ring_attention, "ring", "ring attention"},
    BarStyle{Bar::hop, "hop", "hops"},
    BarStyle{Bar::waiting, "wait", "waiting"},
    BarStyle{Bar::idle, "idle", "idle"},
    BarStyle{Bar::gradient_sync, "sync", "gradient sync"},
};

Bar bar_of(Activity activity) {
  switch (activity) {
    case Activity::fixed:
      return Bar::fixed;
    case Activity::linear:
    case Activity::head:
      return Bar::linear;
    case Activity::local_attention:
      return Bar::local_attention;
    case Activity::ring_attention:
      return Bar::ring_attention;
    case Activity::hop:
      return Bar::hop;
  }
  return Bar::idle;
}

// Fills differ in grey and in pattern, so that a photocopy still tells them apart.
constexpr std::string_view style_sheet = R"svg(<defs>
<pattern id="diagonal" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="5" height="5" fill="#ffffff"/><rect width="2" height="5" fill="#4d4d4d"/></pattern>
<pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">
<rect width="4" height="4" fill="#ffffff"/><circle cx="2" cy="2" r="0.7" fill="#555555"/></pattern>
<pattern id="bars" width="3" height="3" patternUnits="userSpaceOnUse">
<rect width="3" height="3" fill="#ffffff"/><rect width="1.6" height="3" fill="#000000"/></pattern>
<pattern id="cross" width="5" height="5" patternUnits="userSpaceOnUse">
<rect width="5" height="5" fill="#ffffff"/><path d="M0 0L5 5M5 0L0 5" stroke="#777777" stroke-width="0.8"/></pattern>
</defs>
<style>
text{font-family:"Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif;font-size:11px;fill:#222222}
.title{font-size:18px;font-weight:bold}
.note{font-size:12px;fill:#555555}
.replica{font-size:12px;font-weight:bold}
.linear{fill:#cfcfcf}
.fixed{fill:#f3f3f3}
.local{fill:url(#diagonal)}
.ring{fill:#1f1f1f}
.hop{fill:url(#bars)}
.wait{fill:url(#dots)}
.idle{fill:#ffffff;stroke:#bbbbbb;stroke-width:0.5}
.sync{fill:url(#cross)}
.linear,.fixed,.local,.ring,.wait,.sync{stroke:#222222;stroke-width:0.5}
.grid{stroke:#e2e2e2;stroke-width:1}
.axis{stroke:#222222;stroke-width:1}
.boundary{stroke:#000000;stroke-width:1.6}
</style>
)svg";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result.append("&amp;");
        break;
      case '<':
        result.append("&lt;");
        break;
      case '>':
        result.append("&gt;");
        break;
      case '"':
        result.append("&quot;");
        break;
      default:
        // Control characters have no place in XML.
        result.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
    }
  }
  return result;
}

/// A unit of time in which numbers below `seconds` are readable.
struct TimeUnit {
  double per_second = 1.0;
  std::string_view name = "s";
};

TimeUnit unit_for(double seconds) {
  if (seconds >= 1.0) return {1.0, "s"};
  if (seconds >= 1e-3) return {1e3, "ms"};
  return {1e6, "us"};
}

std::string format_time(double seconds) {
  const TimeUnit unit = unit_for(seconds);
  return fmt::format("{:.4g} {}", seconds * unit.per_second, unit.name);
}

/// 1, 2 or 5 times a power of ten: about `count` of them make `range`.
double tick_distance(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10.0 * power;
}

/// Pixels.
constexpr double left_margin = 74.0;
constexpr double plot_width = 1140.0;
constexpr double right_margin = 26.0;
constexpr double header_height = 92.0;
constexpr double replica_header = 24.0;
constexpr double replica_gap = 10.0;
constexpr double axis_height = 46.0;
/// Of one pass over a layer, from which on kernels are drawn one by one.
constexpr double detailed_pass_width = 14.0;

struct LaneSize {
  double bar = 0.0;
  double strip = 0.0;  ///< of the hops, below the bar
  double gap = 0.0;

  double height() const { return bar + strip + gap; }
};

LaneSize lane_size(std::size_t ranks) {
  if (ranks <= 8) return {26.0, 7.0, 9.0};
  if (ranks <= 40) return {14.0, 4.0, 4.0};
  return {7.0, 2.5, 1.5};
}

class SvgTimeline {
 public:
  SvgTimeline(const Simulation& simulation, const Plan& plan) : simulation_(simulation), plan_(plan) {
    const auto ranks = static_cast<std::size_t>(plan.topology.context_parallel);
    lane_ = lane_size(ranks * simulation.micro_batches.size());
    replica_height_ = replica_header + static_cast<double>(ranks) * lane_.height() + replica_gap;
    lanes_height_ = replica_height_ * static_cast<double>(simulation.micro_batches.size());
    scale_ = simulation.step_seconds > 0.0 ? plot_width / simulation.step_seconds : 0.0;
    const double passes = static_cast<double>(2 * simulation.layers * plan.micro_batch_count());
    detailed_ = !simulation.spans.empty() && plot_width / passes >= detailed_pass_width;
    if (detailed_) sort_spans();
  }

  std::string draw() {
    const double width = left_margin + plot_width + right_margin;
    const double height = header_height + lanes_height_ + axis_height;
    out(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)",
        width, height);
    out("\n<title>{}</title>\n{}", escaped(title()), style_sheet);
    out("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#ffffff\"/>\n", width, height);
    draw_header();
    draw_axis();
    for (std::size_t replica = 0; replica < simulation_.micro_batches.size(); ++replica) draw_replica(replica);
    out("</svg>\n");
    return std::move(text_);
  }

 private:
  template <class... Args>
  void out(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  double x(double seconds) const { return left_margin + seconds * scale_; }

  std::string title() const {
    return fmt::format("{}: a step of {} on {} x {} ranks", plan_.policy, format_time(simulation_.step_seconds),
                       plan_.topology.data_parallel, plan_.topology.context_parallel);
  }

  void draw_header() {
    out("<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n", left_margin, escaped(title()));
    const auto tokens = std::accumulate(plan_.lengths.begin(), plan_.lengths.end(), std::int64_t{0});
    const std::int64_t micro_batches = plan_.micro_batch_count();
    out("<text class=\"note\" x=\"{}\" y=\"46\">{} sequences, {} tokens, {} micro-batch{}; ranks compute {:.1f}% of "
        "the "
        "time; ZeRO stage {}; {}</text>\n",
        left_margin, plan_.lengths.size(), format_count(tokens), micro_batches, micro_batches == 1 ? "" : "es",
        100.0 * simulation_.busy_share(), simulation_.options.zero_stage,
        detailed_ ? "every kernel where it runs" : "a micro-batch's time by kind, not in its order");
    double at = left_margin;
    for (const BarStyle& style : bar_styles) {
      const bool strip = style.bar == Bar::hop;
      out("<rect class=\"{}\" x=\"{:.1f}\" y=\"{}\" width=\"26\" height=\"{}\"/>", style.css_class, at, strip ? 67 : 62,
          strip ? 6 : 14);
      out("<text x=\"{:.1f}\" y=\"73\">{}</text>\n", at + 32.0, style.legend);
      at += 32.0 + 6.2 * static_cast<double>(style.legend.size()) + 22.0;
    }
  }

  void draw_axis() {
    const double top = header_height;
    const double bottom = header_height + lanes_height_;
    if (simulation_.step_seconds > 0.0) {
      const TimeUnit unit = unit_for(simulation_.step_seconds);
      const double distance = tick_distance(simulation_.step_seconds, 12);
      for (int tick = 0; tick * distance <= simulation_.step_seconds * (1.0 + 1e-9); ++tick) {
        const double at = x(tick * distance);
        out("<line class=\"grid\" x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\"/>", at, top, bottom);
        out("<line class=\"axis\" x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\"/>", at, bottom,
            bottom + 5.0);
        out("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", at, bottom + 18.0,
            tick * distance * unit.per_second);
      }
      out("<text class=\"note\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">time in {}</text>\n",
          left_margin + plot_width, bottom + 36.0, unit.name);
    }
    out("<line class=\"axis\" x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\"/>\n", left_margin,
        left_margin + plot_width, bottom);
  }

  void draw_replica(std::size_t replica) {
    const auto& micro_batches = simulation_.micro_batches[replica];
    const double top = header_height + replica_height_ * static_cast<double>(replica);
    out("<g class=\"replica-lanes\">\n<text class=\"replica\" x=\"10\" y=\"{:.1f}\">replica {}</text>\n", top + 16.0,
        replica);
    for (std::size_t index = 0; index < micro_batches.size(); ++index)
      draw_micro_batch_name(micro_batches[index], index, top);
    const std::size_t ranks = micro_batches.empty() ? 0 : micro_batches.front().ranks.size();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      draw_lane(replica, rank, top + replica_header + static_cast<double>(rank) * lane_.height());
    }
    for (const SimulatedMicroBatch& micro_batch : micro_batches) {
      if (!micro_batch.empty) draw_boundary(micro_batch, top + replica_header);
    }
    out("</g>\n");
  }

  void draw_micro_batch_name(const SimulatedMicroBatch& micro_batch, std::size_t index, double top) {
    const double width = (micro_batch.end - micro_batch.begin) * scale_;
    if (micro_batch.empty || width < 14.0) return;
    out("<text x=\"{:.2f}\" y=\"{:.1f}\">{}{}</text>\n", x(micro_batch.begin) + 4.0, top + 17.0,
        width >= 90.0 ? "micro-batch " : "", index);
  }

  /// A line where the micro-batch begins: through all lanes, or in steps where ranks don't wait for each other.
  void draw_boundary(const SimulatedMicroBatch& micro_batch, double top) {
    const double first = micro_batch.ranks.front().begin;
    const bool together = std::all_of(micro_batch.ranks.begin(), micro_batch.ranks.end(),
                                      [&](const SimulatedRank& rank) { return rank.begin == first; });
    std::string path;
    if (together) {
      path = fmt::format("M{:.2f} {:.1f}V{:.1f}", x(first), top - 14.0,
                         top + static_cast<double>(micro_batch.ranks.size()) * lane_.height() - lane_.gap + 2.0);
    } else {
      for (std::size_t rank = 0; rank < micro_batch.ranks.size(); ++rank) {
        const double lane = top + static_cast<double>(rank) * lane_.height();
        fmt::format_to(std::back_inserter(path), "M{:.2f} {:.1f}V{:.1f}", x(micro_batch.ranks[rank].begin), lane - 2.0,
                       lane + lane_.height() - lane_.gap + 2.0);
      }
    }
    out("<path class=\"boundary\" d=\"{}\"/>\n", path);
  }

  void draw_lane(std::size_t replica, std::size_t rank, double top) {
    out("<g class=\"lane\">\n<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\"{}>rank {}</text>\n", left_margin - 8.0,
        top + lane_.bar / 2.0 + (lane_.bar < 10.0 ? 3.0 : 4.0), lane_.bar < 10.0 ? " style=\"font-size:8px\"" : "",
        rank);
    double drawn = 0.0;
    for (std::size_t index = 0; index < simulation_.micro_batches[replica].size(); ++index) {
      const SimulatedMicroBatch& micro_batch = simulation_.micro_batches[replica][index];
      const SimulatedRank& simulated = micro_batch.ranks[rank];
      if (micro_batch.empty) continue;
      const std::string where = fmt::format("replica {}, rank {}, micro-batch {}", replica, rank, index);
      bar(Bar::idle, drawn, simulated.begin, top, where);
      if (detailed_) {
        draw_kernels(spans_of(replica, index, rank), simulated, top, where);
      } else {
        draw_sums(simulated, top, where);
      }
      drawn = simulated.end;
    }
    const std::string where = fmt::format("replica {}, rank {}", replica, rank);
    bar(Bar::idle, drawn, simulation_.schedule_seconds, top, where);
    bar(Bar::gradient_sync, simulation_.schedule_seconds, simulation_.step_seconds, top, where);
    out("</g>\n");
  }

  /// One bar of a rank's time in a micro-batch, by kind. Its hops begin where its matrix products end, as in each
  /// layer.
  void draw_sums(const SimulatedRank& rank, double top, const std::string& where) {
    double at = rank.begin;
    const auto next = [&](Bar kind, double seconds) {
      bar(kind, at, at + seconds, top, where);
      at += seconds;
    };
    next(Bar::fixed, rank.of(Activity::fixed));
    next(Bar::linear, rank.of(Activity::linear) + rank.of(Activity::head));
    bar(Bar::hop, at, at + rank.of(Activity::hop), top, where);
    next(Bar::local_attention, rank.of(Activity::local_attention));
    next(Bar::ring_attention, rank.of(Activity::ring_attention));
    next(Bar::waiting, rank.end - at);
  }

  void draw_kernels(std::span<const Span> spans, const SimulatedRank& rank, double top, const std::string& where) {
    double at = rank.begin;
    for (const Span& span : spans) {
      const std::string what =
          fmt::format("{}, layer {} {}{}", where, span.layer, name_of(span.pass),
                      span.ring < 0 ? "" : fmt::format(", ring {}, step {}", span.ring, span.step));
      if (span.activity == Activity::hop) {
        bar(Bar::hop, span.begin, span.end, top, what);
        continue;
      }
      bar(Bar::waiting, at, span.begin, top, where);
      bar(bar_of(span.activity), span.begin, span.end, top, what);
      at = span.end;
    }
    bar(Bar::waiting, at, rank.end, top, where);
  }

  void bar(Bar kind, double begin, double end, double top, const std::string& where) {
    // Rounding leaves nothing that could be seen.
    if ((end - begin) * scale_ < 1e-6) return;
    const bool strip = kind == Bar::hop;
    const auto style =
        std::find_if(bar_styles.begin(), bar_styles.end(), [&](const BarStyle& known) { return known.bar == kind; });
    out("<rect class=\"{}\" x=\"{:.3f}\" y=\"{:.1f}\" width=\"{:.3f}\" height=\"{:.1f}\"><title>{}: {} "
        "{}</title></rect>\n",
        style->css_class, x(begin), strip ? top + lane_.bar + 1.0 : top, (end - begin) * scale_,
        strip ? lane_.strip - 1.0 : lane_.bar, where, style->legend, format_time(end - begin));
  }

  static std::array<std::int32_t, 3> lane_key(const Span& span) { return {span.replica, span.micro_batch, span.rank}; }

  void sort_spans() {
    spans_ = simulation_.spans;
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return lane_key(a) != lane_key(b) ? lane_key(a) < lane_key(b) : a.begin < b.begin;
    });
  }

  std::span<const Span> spans_of(std::size_t replica, std::size_t micro_batch, std::size_t rank) const {
    const std::array<std::int32_t, 3> key{static_cast<std::int32_t>(replica), static_cast<std::int32_t>(micro_batch),
                                          static_cast<std::int32_t>(rank)};
    const auto begin =
        std::partition_point(spans_.begin(), spans_.end(), [&](const Span& s) { return lane_key(s) < key; });
    const auto end = std::partition_point(begin, spans_.end(), [&](const Span& s) { return lane_key(s) == key; });
    return {begin, end};
  }

  const Simulation& simulation_;
  const Plan& plan_;
  std::string text_;
  LaneSize lane_;
  double replica_height_ = 0.0;
  double lanes_height_ = 0.0;
  double scale_ = 0.0;  ///< pixels per second
  bool detailed_ = false;
  std::vector<Span> spans_;  ///< by replica, micro-batch, rank, time; if detailed
};

}  // namespace

std::string timeline_svg(const Simulation& simulation, const Plan& plan) {
  return SvgTimeline(simulation, plan).draw();
}

}  // namespace skrull
