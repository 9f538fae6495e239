#pragma once
// Pictures of a simulated step: an SVG for people, a trace for Perfetto. Pure functions from simulation to text.

#include <string>

#include "skrull/schedule/simulator.h"

namespace skrull {

/// One lane per rank, grouped by replica, micro-batch boundaries marked; black, white and greys, no script; what a bar
/// is and how long shows when it is pointed at. Where a pass over a layer is wide enough to be seen, every kernel and
/// hop is drawn where it happens. Otherwise a micro-batch of a rank is one bar of all its time by kind: fixed costs and
/// matrix products, local and ring attention, waiting, with the hops in a strip below; and under the lanes comes a
/// close-up of one layer, forward and backward, of the longest micro-batch. Both kinds of detail need recorded spans.
std::string timeline_svg(const Simulation& simulation, const Plan& plan);

struct TraceOptions {
  /// Layers 0, 1, .. of every micro-batch whose kernels and hops are listed one by one; the other layers of a pass are
  /// one slice. 24 layers of 32 ranks with many rings make a trace of 50 MB, two make 5.
  std::int64_t detailed_layers = 2;
};

/// Chrome trace events (chrome://tracing, ui.perfetto.dev): a process per replica, and per rank a thread for its
/// compute and one for its communication stream. The simulation must have recorded its spans (RunFailure otherwise).
std::string timeline_trace(const Simulation& simulation, const Plan& plan, const TraceOptions& options = {});

}  // namespace skrull
