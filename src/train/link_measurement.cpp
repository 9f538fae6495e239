#include "skrull/train/link_measurement.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "skrull/core/median.h"
#include "skrull/device/stream_stopwatch.h"

namespace skrull {
namespace {

/// Median seconds of a hop of `bytes`, of the slowest rank.
double hop_seconds(Communicator& ring, Device& device, std::int64_t bytes, int hops) {
  Stream& stream = device.communication_stream();
  ControlChannel control(ring, stream);
  const int next = (ring.rank() + 1) % ring.size();
  const int previous = (ring.rank() + ring.size() - 1) % ring.size();
  std::vector<char> sent(static_cast<std::size_t>(bytes), 1);
  std::vector<char> received(sent.size());
  const std::vector<Transfer> transfers = {{Transfer::Kind::send, next, sent.data(), bytes},
                                           {Transfer::Kind::receive, previous, received.data(), bytes}};
  std::vector<double> seconds;
  control.barrier();
  for (int hop = 0; hop < hops; ++hop) {
    const StreamStopwatch watch(stream);
    ring.exchange(stream, transfers);
    seconds.push_back(watch.seconds());
  }
  return control.max(median(std::move(seconds)));
}

std::optional<LinkRate> measure_ring(Communicator& ring, Device& device) {
  if (ring.size() < 2) return std::nullopt;
  constexpr std::int64_t large = std::int64_t{4} << 20;
  const double latency = hop_seconds(ring, device, 8, 400);
  const double seconds = hop_seconds(ring, device, large, 60);
  return LinkRate{static_cast<double>(large) / std::max(seconds - latency, 1e-9), latency};
}

/// The slowest of all ranks' rings; nothing where no rank has one.
std::optional<LinkRate> slowest(const std::optional<LinkRate>& own, ControlChannel& control) {
  const double seconds_per_byte = control.max(own ? 1.0 / own->bytes_per_s : 0.0);
  const double latency = control.max(own ? own->latency_s : 0.0);
  if (seconds_per_byte == 0.0) return std::nullopt;
  return LinkRate{1.0 / seconds_per_byte, latency};
}

/// To three digits.
double rounded(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2.0);
  return std::round(value / unit) * unit;
}

}  // namespace

MeasuredLinks measure_links(const MpiSession& session, Device& device) {
  const std::unique_ptr<Communicator> world = session.world();
  ControlChannel control(*world, device.communication_stream());
  // Nodes hold consecutive ranks: the first one of a node names it.
  const auto node = world->split(session.rank() - session.local_rank(), session.rank());
  const auto across = world->split(session.local_rank(), session.rank());
  MeasuredLinks links;
  links.intra_node = slowest(measure_ring(*node, device), control);
  links.inter_node = slowest(measure_ring(*across, device), control);
  return links;
}

void set_links(HardwareProfile& profile, const MeasuredLinks& links, int ranks) {
  const auto set = [&](const std::optional<LinkRate>& measured, LinkRate& link, const char* source) {
    if (!measured) return;
    link = {rounded(measured->bytes_per_s), rounded(measured->latency_s)};
    profile.sources[source] =
        fmt::format("measured: hops of 4 MiB and of 8 bytes round rings, {} ranks at once", ranks);
  };
  set(links.intra_node, profile.intra_node, "links.intra");
  set(links.inter_node, profile.inter_node, "links.inter");
}

}  // namespace skrull
