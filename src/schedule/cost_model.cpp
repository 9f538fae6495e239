#include "skrull/schedule/cost_model.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr double backward_attention = 2.5;
constexpr double backward_linear = 2.0;
constexpr double key_value_bytes = 2.0;  // bf16 on the wire
// fp32 dK and dV beside bf16 K and V: three times the bytes of K and V; alone, twice.
constexpr double backward_hop = 3.0;
constexpr double homeward_hop = 2.0;

double paper_linear_flops(const ModelShape& model) {
  const auto h = static_cast<double>(model.hidden_size);
  return 20.0 * h * h + 4.0 * h * static_cast<double>(model.num_key_value_heads * model.head_dim);
}

/// Sums over a rank's rings, seconds of one layer.
struct RingSums {
  double compute_forward = 0.0;
  double compute_backward = 0.0;
  double transfer_forward = 0.0;
  double transfer_backward = 0.0;
  double exposed_forward = 0.0;
  double exposed_backward = 0.0;
};

RingSums sum_rings(std::span<const RingLoad> rings, const HardwareProfile& profile) {
  RingSums sums;
  for (const RingLoad& ring : rings) {
    const LinkRate& link = ring.link == Link::intra_node ? profile.intra_node : profile.inter_node;
    const auto size = static_cast<double>(ring.size);
    const double hops = size - 1.0;
    const double compute_forward = ring.attention_forward + size * profile.overhead.ring_step_forward_s;
    const double compute_backward =
        backward_attention * ring.attention_forward + size * profile.overhead.ring_step_backward_s;
    const double hop_forward = link.seconds(ring.hop_bytes);
    const double hop_backward = link.seconds(backward_hop * ring.hop_bytes);
    const double homeward = link.seconds(homeward_hop * ring.hop_bytes);
    sums.compute_forward += compute_forward;
    sums.compute_backward += compute_backward;
    sums.transfer_forward += hops * hop_forward;
    sums.transfer_backward += hops * hop_backward + homeward;
    sums.exposed_forward += hops * std::max(0.0, hop_forward - compute_forward / size);
    sums.exposed_backward += hops * std::max(0.0, hop_backward - compute_backward / size) + homeward;
  }
  return sums;
}

}  // namespace

CostModel::CostModel(const ModelShape& model, const HardwareProfile& profile, Recompute recompute, FlopsModel flops)
    : model_(model), profile_(profile), recompute_(recompute), flops_(flops) {
  require(model.hidden_size > 0 && model.num_layers > 0 && model.num_attention_heads > 0 && model.head_dim > 0,
          "cost model: sizes of the model are not positive");
  layers_ = static_cast<double>(model.num_layers);
  forward_passes_ = recompute == Recompute::full ? 2.0 : 1.0;
  linear_rate_ = profile.linear_peak_flops(static_cast<double>(model.hidden_size));
  attention_rate_ = profile.attention_peak_flops(static_cast<double>(model.head_dim));
  const bool paper = flops == FlopsModel::paper;
  linear_flops_ = paper ? paper_linear_flops(model) : model.linear_flops_per_token();
  attention_flops_ = paper ? 4.0 * static_cast<double>(model.hidden_size) : model.attention_flops_per_pair();
  const LayerOverhead& overhead = profile.overhead;
  micro_batch_overhead_ = layers_ * (forward_passes_ * overhead.layer_forward_s + overhead.layer_backward_s);
  if (profile.gradient_sync) {
    // Reduce-scatter and gather of bf16; heads are tied below 7B (hidden size 3584).
    const double embeddings = model.hidden_size < 3584 ? 1.0 : 2.0;
    const double parameters =
        layers_ * model.linear_flops_per_token() / 2.0 + embeddings * model.head_flops_per_token() / 2.0;
    gradient_sync_ =
        4.0 * parameters / profile.gradient_sync->bus_bytes_per_s * profile.gradient_sync->exposed_fraction;
  }
}

double CostModel::linear_forward(std::int64_t tokens) const {
  if (tokens == 0) return 0.0;
  const auto t = static_cast<double>(tokens);
  return t * linear_flops_ / (linear_rate_ * profile_.linear_efficiency(t));
}

double CostModel::head_forward(std::int64_t tokens) const {
  if (tokens == 0) return 0.0;
  const auto t = static_cast<double>(tokens);
  return t * model_.head_flops_per_token() / (linear_rate_ * profile_.linear_efficiency(t));
}

double CostModel::linear_seconds(std::int64_t tokens) const {
  if (tokens == 0) return 0.0;
  const auto t = static_cast<double>(tokens);
  const double flops = layers_ * (forward_passes_ + backward_linear) * linear_flops_ +
                       (1.0 + backward_linear) * model_.head_flops_per_token();
  return t * flops / (linear_rate_ * profile_.linear_efficiency(t));
}

double CostModel::attention_seconds(double pairs, std::int64_t tokens) const {
  if (tokens == 0) return 0.0;
  return attention_flops_ * pairs / (attention_rate_ * profile_.attention_efficiency(static_cast<double>(tokens)));
}

double CostModel::attention_forward(std::int64_t length, int ring_size, int position) const {
  const std::int64_t tokens = zigzag_shard_length(length, ring_size, position);
  if (flops_ == FlopsModel::paper) {
    const auto whole = static_cast<double>(length);
    return attention_seconds(whole * whole / static_cast<double>(ring_size), tokens);
  }
  return attention_seconds(static_cast<double>(zigzag_causal_area(length, ring_size, position)), tokens);
}

void CostModel::attention_forward(std::int64_t length, int ring_size, std::span<double> per_position) const {
  // Shards have at most three sizes, and the efficiency is what costs time.
  std::int64_t known_tokens = -1;
  double seconds_per_pair = 0.0;
  for (int position = 0; position < ring_size; ++position) {
    const std::int64_t tokens = zigzag_shard_length(length, ring_size, position);
    if (tokens != known_tokens) {
      known_tokens = tokens;
      seconds_per_pair = attention_seconds(1.0, tokens);
    }
    const double pairs = flops_ == FlopsModel::paper
                             ? static_cast<double>(length) * static_cast<double>(length) / ring_size
                             : static_cast<double>(zigzag_causal_area(length, ring_size, position));
    per_position[static_cast<std::size_t>(position)] = pairs * seconds_per_pair;
  }
}

double CostModel::attention_work(std::int64_t length, int ring_size) const {
  double forward = 0.0;
  for (int position = 0; position < ring_size; ++position) forward += attention_forward(length, ring_size, position);
  return attention_weight() * forward;
}

double CostModel::hop_bytes(std::int64_t length, int ring_size) const {
  return static_cast<double>(largest_zigzag_shard(length, ring_size)) *
         static_cast<double>(model_.key_value_elements_per_token()) * key_value_bytes;
}

double CostModel::rank_seconds(double linear_seconds, bool has_local, double local_forward,
                               std::span<const RingLoad> rings) const {
  const LayerOverhead& overhead = profile_.overhead;
  const double local_f = has_local ? local_forward + overhead.local_attention_forward_s : 0.0;
  const double local_b = has_local ? backward_attention * local_forward + overhead.local_attention_backward_s : 0.0;
  if (rings.empty()) return micro_batch_overhead_ + linear_seconds + layers_ * (forward_passes_ * local_f + local_b);
  const RingSums sums = sum_rings(rings, profile_);
  const double forward = std::max(sums.exposed_forward, local_f) + sums.compute_forward;
  const double backward = std::max(sums.exposed_backward, local_b) + sums.compute_backward;
  return micro_batch_overhead_ + linear_seconds + layers_ * (forward_passes_ * forward + backward);
}

RankTime CostModel::rank_time(std::int64_t tokens, bool has_local, double local_forward,
                              std::span<const RingLoad> rings) const {
  const LayerOverhead& overhead = profile_.overhead;
  const double local_f = has_local ? local_forward + overhead.local_attention_forward_s : 0.0;
  const double local_b = has_local ? backward_attention * local_forward + overhead.local_attention_backward_s : 0.0;
  const RingSums sums = sum_rings(rings, profile_);
  const auto over_layers = [&](double forward, double backward) {
    return layers_ * (forward_passes_ * forward + backward);
  };
  RankTime time;
  time.linear = linear_seconds(tokens);
  time.local_attention = over_layers(local_f, local_b);
  time.ring_attention = over_layers(sums.compute_forward, sums.compute_backward);
  time.fixed = micro_batch_overhead_;
  time.transfer = over_layers(sums.transfer_forward, sums.transfer_backward);
  time.exposed_transfer =
      over_layers(std::max(0.0, sums.exposed_forward - local_f), std::max(0.0, sums.exposed_backward - local_b));
  time.total = rank_seconds(time.linear, has_local, local_forward, rings);
  return time;
}

double CostModel::seconds_alone(std::int64_t length, int ring_size, Link link) const {
  if (ring_size == 1) return rank_seconds(length, true, attention_forward(length, 1, 0), {});
  double slowest = 0.0;
  std::vector<double> attention(static_cast<std::size_t>(ring_size));
  attention_forward(length, ring_size, attention);
  RingLoad ring{ring_size, 0.0, hop_bytes(length, ring_size), link};
  for (int position = 0; position < ring_size; ++position) {
    ring.attention_forward = attention[static_cast<std::size_t>(position)];
    const std::int64_t tokens = zigzag_shard_length(length, ring_size, position);
    slowest = std::max(slowest, rank_seconds(tokens, false, 0.0, {&ring, 1}));
  }
  return slowest;
}

double CostModel::flops(std::int64_t tokens, std::int64_t causal_area) const {
  const auto t = static_cast<double>(tokens);
  return layers_ * ((forward_passes_ + backward_linear) * linear_flops_ * t +
                    (forward_passes_ + backward_attention) * attention_flops_ * static_cast<double>(causal_area)) +
         (1.0 + backward_linear) * model_.head_flops_per_token() * t;
}

}  // namespace skrull
