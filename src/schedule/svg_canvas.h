#pragma once
// SVG text of timelines: bars that mean something, lanes, time scales.

#include <spdlog/fmt/fmt.h>

#include <array>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "skrull/schedule/simulator.h"

namespace skrull {

/// What a bar can mean.
enum class Bar { linear, fixed, local_attention, ring_attention, hop, waiting, idle, gradient_sync };

struct BarStyle {
  Bar bar;
  std::string_view css_class;
  std::string_view legend;
};

inline constexpr std::array bar_styles{
    BarStyle{Bar::linear, "linear", "linear layers, head"},
    BarStyle{Bar::fixed, "fixed", "fixed costs"},
    BarStyle{Bar::local_attention, "local", "local attention"},
    BarStyle{Bar::ring_attention, "ring", "ring attention"},
    BarStyle{Bar::hop, "hop", "hops"},
    BarStyle{Bar::waiting, "wait", "waiting"},
    BarStyle{Bar::idle, "idle", "idle"},
    BarStyle{Bar::gradient_sync, "sync", "gradient sync"},
};

/// Where times are on a line of pixels.
struct TimeScale {
  double left = 0.0;  ///< pixel of `from`
  double from = 0.0;  ///< seconds
  double pixels_per_second = 0.0;

  double x(double seconds) const { return left + (seconds - from) * pixels_per_second; }
};

/// Pixels of a rank's lane.
struct LaneSize {
  double bar = 0.0;
  double strip = 0.0;  ///< of the hops, below the bar
  double gap = 0.0;

  double height() const { return bar + strip + gap; }
};

/// So that the lanes of a picture fit a screen, or a poster.
LaneSize lane_size(std::size_t lanes);

/// "12.34 ms".
std::string format_time(double seconds);

/// Text as XML content.
std::string escaped(std::string_view text);

/// Spans in the order in which lanes are drawn: by replica, micro-batch, rank, time.
void sort_by_lane(std::vector<Span>& spans);
/// Those of one lane.
std::span<const Span> lane_of(const std::vector<Span>& sorted, std::size_t replica, std::size_t micro_batch,
                              std::size_t rank);

/// SVG text that grows.
class SvgCanvas {
 public:
  explicit SvgCanvas(LaneSize lane) : lane_(lane) {}

  template <class... Args>
  void out(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  const LaneSize& lane() const { return lane_; }
  std::string take() { return std::move(text_); }

  void open(double width, double height, std::string_view title);
  void close() { text_.append("</svg>\n"); }
  /// The meaning of bars, in one line at `top`.
  void legend(double left, double top);
  /// A line below lanes from `top` to `bottom` over `seconds` from the scale's start, about `ticks` ticks, in the unit
  /// that suits times like `usual`.
  void axis(const TimeScale& scale, double seconds, double top, double bottom, int ticks, double usual);
  void lane_name(double left, double top, std::size_t rank);
  /// A bar of a lane (a hop: below it) that tells where it is and how long when pointed at.
  void bar(Bar kind, const TimeScale& scale, double begin, double end, double top, std::string_view where);
  /// Kernels and hops of a lane (by time) as far as they lie between `begin` and `end`, waiting between them.
  void kernels(std::span<const Span> spans, const TimeScale& scale, double begin, double end, double top,
               std::string_view where);

 private:
  std::string text_;
  LaneSize lane_;
};

}  // namespace skrull
