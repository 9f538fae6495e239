#pragma once
// Pictures of a simulated step: an SVG for people, a trace for Perfetto. Pure functions from simulation to text.

#include <string>

#include "skrull/schedule/simulator.h"

namespace skrull {

/// One lane per rank, grouped by replica, micro-batch boundaries marked; black, white and greys, no script. Where the
/// layers are wide enough to be seen (and the simulation has recorded its spans) every kernel and hop is drawn where it
/// happens; otherwise a micro-batch of a rank is drawn as one bar of all its time by kind: matrix products and fixed
/// costs, then local and ring attention and waiting, the hops in a strip below them.
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
