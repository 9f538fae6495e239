#include "svg_canvas.h"

#include <algorithm>
#include <cmath>

namespace skrull {
namespace {

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
.fixed{fill:#8c8c8c}
.local{fill:url(#diagonal)}
.ring{fill:#1f1f1f}
.hop{fill:url(#bars)}
.wait{fill:url(#dots)}
.idle{fill:#ffffff;stroke:#bbbbbb;stroke-width:0.5}
.sync{fill:url(#cross)}
.linear,.fixed,.local,.wait,.sync{stroke:#222222;stroke-width:0.5}
.ring{stroke:#ffffff;stroke-width:0.5}
.grid{stroke:#e2e2e2;stroke-width:1}
.axis{stroke:#222222;stroke-width:1}
.boundary{stroke:#000000;stroke-width:1.6}
</style>
)svg";

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

/// 1, 2 or 5 times a power of ten: about `count` of them make `range`.
double tick_distance(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10.0 * power;
}

std::array<std::int32_t, 3> lane_key(const Span& span) {
  return {span.replica, span.micro_batch, span.rank};
}

}  // namespace

LaneSize lane_size(std::size_t ranks) {
  if (ranks <= 8) return {26.0, 7.0, 9.0};
  if (ranks <= 40) return {14.0, 4.0, 4.0};
  return {7.0, 2.5, 1.5};
}

std::string format_time(double seconds) {
  const TimeUnit unit = unit_for(seconds);
  return fmt::format("{:.4g} {}", seconds * unit.per_second, unit.name);
}

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

void sort_by_lane(std::vector<Span>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return lane_key(a) != lane_key(b) ? lane_key(a) < lane_key(b) : a.begin < b.begin;
  });
}

std::span<const Span> lane_of(const std::vector<Span>& sorted, std::size_t replica, std::size_t micro_batch,
                              std::size_t rank) {
  const std::array<std::int32_t, 3> key{static_cast<std::int32_t>(replica), static_cast<std::int32_t>(micro_batch),
                                        static_cast<std::int32_t>(rank)};
  const auto begin =
      std::partition_point(sorted.begin(), sorted.end(), [&](const Span& s) { return lane_key(s) < key; });
  const auto end = std::partition_point(begin, sorted.end(), [&](const Span& s) { return lane_key(s) == key; });
  return {begin, end};
}

void SvgCanvas::open(double width, double height, std::string_view title) {
  out(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">)",
      width, height);
  out("\n<title>{}</title>\n{}", escaped(title), style_sheet);
  out("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#ffffff\"/>\n", width, height);
}

void SvgCanvas::legend(double left, double top) {
  double at = left;
  for (const BarStyle& style : bar_styles) {
    const bool strip = style.bar == Bar::hop;
    out("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"26\" height=\"{}\"/>", style.css_class, at,
        strip ? top + 5.0 : top, strip ? 6 : 14);
    out("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", at + 32.0, top + 11.0, style.legend);
    at += 32.0 + 6.2 * static_cast<double>(style.legend.size()) + 22.0;
  }
}

void SvgCanvas::axis(const TimeScale& scale, double seconds, double top, double bottom, int ticks, double usual) {
  const double right = scale.x(scale.from + seconds);
  if (seconds > 0.0) {
    const TimeUnit unit = unit_for(usual);
    const double distance = tick_distance(seconds, ticks);
    for (int tick = 0; tick * distance <= seconds * (1.0 + 1e-9); ++tick) {
      const double at = scale.x(scale.from + tick * distance);
      out("<line class=\"grid\" x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\"/>", at, top, bottom);
      out("<line class=\"axis\" x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\"/>", at, bottom,
          bottom + 5.0);
      out("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n", at, bottom + 18.0,
          tick * distance * unit.per_second);
    }
    out("<text class=\"note\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">time in {}</text>\n", right, bottom + 34.0,
        unit.name);
  }
  out("<line class=\"axis\" x1=\"{0:.2f}\" y1=\"{2:.1f}\" x2=\"{1:.2f}\" y2=\"{2:.1f}\"/>\n", scale.left, right,
      bottom);
}

void SvgCanvas::lane_name(double left, double top, std::size_t rank) {
  const bool small = lane_.bar < 10.0;
  out("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\"{}>rank {}</text>\n", left - 8.0,
      top + lane_.bar / 2.0 + (small ? 3.0 : 4.0), small ? " style=\"font-size:8px\"" : "", rank);
}

void SvgCanvas::bar(Bar kind, const TimeScale& scale, double begin, double end, double top, std::string_view where) {
  const double width = (end - begin) * scale.pixels_per_second;
  // Rounding leaves nothing that could be seen.
  if (width < 1e-6) return;
  const bool strip = kind == Bar::hop;
  const auto style =
      std::find_if(bar_styles.begin(), bar_styles.end(), [&](const BarStyle& known) { return known.bar == kind; });
  out("<rect class=\"{}\" x=\"{:.3f}\" y=\"{:.1f}\" width=\"{:.3f}\" height=\"{:.1f}\"><title>{}: {} "
      "{}</title></rect>\n",
      style->css_class, scale.x(begin), strip ? top + lane_.bar + 1.0 : top, width,
      strip ? lane_.strip - 1.0 : lane_.bar, where, style->legend, format_time(end - begin));
}

void SvgCanvas::kernels(std::span<const Span> spans, const TimeScale& scale, double begin, double end, double top,
                        std::string_view where) {
  double at = begin;
  for (const Span& span : spans) {
    if (span.end <= begin || span.begin >= end) continue;
    const double from = std::max(span.begin, begin);
    const double to = std::min(span.end, end);
    std::string what = fmt::format("{}, layer {} {}", where, span.layer, name_of(span.pass));
    if (span.ring >= 0) what = fmt::format("{}, ring {}, step {}", what, span.ring, span.step);
    if (span.activity != Activity::hop) {
      bar(Bar::waiting, scale, at, from, top, where);
      at = to;
    }
    bar(bar_of(span.activity), scale, from, to, top, what);
  }
  bar(Bar::waiting, scale, at, end, top, where);
}

}  // namespace skrull
