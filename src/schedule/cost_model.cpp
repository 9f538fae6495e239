#include "skrull/schedule/cost_model.h"

#include <algorithm>
#include <cmath>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr double backward_attention = CostFactors::backward_attention;
constexpr double backward_linear = CostFactors::backward_linear;
constexpr double key_value_bytes = 2.0;  // bf16 on the wire

double paper_linear_flops(const ModelShape& model) {
  const auto h = static_cast<double>(model.hidden_size);
  return 20.0 * h * h + 4.0 * h * static_cast<double>(model.num_key_value_heads * model.head_dim);
}

/// Longest table of linear seconds; an efficiency that rises beyond is computed when asked for.
constexpr std::int64_t longest_linear_table = 65536;

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
    // Reduce-scatter and gather of bf16.
    const double parameters = layers_ * model.layer_parameters() + model.embedding_parameters();
    gradient_sync_ =
        4.0 * parameters / profile.gradient_sync->bus_bytes_per_s * profile.gradient_sync->exposed_fraction;
  }
  const double rising_until = std::ceil(profile.linear_efficiency.points().back().at);
  const auto table = std::min(longest_linear_table, static_cast<std::int64_t>(std::min(rising_until, 1e9)));
  linear_seconds_.reserve(static_cast<std::size_t>(table) + 1);
  linear_seconds_.push_back(0.0);
  for (std::int64_t tokens = 1; tokens <= table; ++tokens) {
    linear_seconds_.push_back(compute_linear_seconds(static_cast<double>(tokens)));
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

double CostModel::compute_linear_seconds(double tokens) const {
  const double flops = layers_ * (forward_passes_ + backward_linear) * linear_flops_ +
                       (1.0 + backward_linear) * model_.head_flops_per_token();
  return tokens * flops / (linear_rate_ * profile_.linear_efficiency(tokens));
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
  for (const ShardGroup& group : zigzag_groups(length, ring_size)) {
    if (group.first == group.end) continue;
    const double pairs = flops_ == FlopsModel::paper ? static_cast<double>(length) * static_cast<double>(length) *
                                                           (group.end - group.first) / static_cast<double>(ring_size)
                                                     : static_cast<double>(group.causal_area);
    forward += attention_seconds(pairs, group.tokens);
  }
  return attention_weight() * forward;
}

double CostModel::hop_bytes(std::int64_t length, int ring_size) const {
  return static_cast<double>(largest_zigzag_shard(length, ring_size)) *
         static_cast<double>(model_.key_value_elements_per_token()) * key_value_bytes;
}

RankTime CostModel::rank_time(std::int64_t tokens, bool has_local, double local_forward,
                              std::span<const RingLoad> rings) const {
  const LayerOverhead& overhead = profile_.overhead;
  const double local_f = has_local ? local_forward + overhead.local_attention_forward_s : 0.0;
  const double local_b = has_local ? backward_attention * local_forward + overhead.local_attention_backward_s : 0.0;
  RingTime sum;
  double transfer_forward = 0.0;
  double transfer_backward = 0.0;
  for (const RingLoad& ring : rings) {
    const RingHops hops = ring_hops(ring.size, ring.hop_bytes, ring.link);
    sum += ring_time(hops, ring.attention_forward);
    transfer_forward += hops.count * hops.forward;
    transfer_backward += hops.count * hops.backward + hops.homeward;
  }
  const auto over_layers = [&](double forward, double backward) {
    return layers_ * (forward_passes_ * forward + backward);
  };
  RankTime time;
  time.linear = linear_seconds(tokens);
  time.local_attention = over_layers(local_f, local_b);
  time.ring_attention = over_layers(sum.compute_forward, sum.compute_backward);
  time.fixed = micro_batch_overhead_;
  time.transfer = over_layers(transfer_forward, transfer_backward);
  time.exposed_transfer =
      over_layers(std::max(0.0, sum.exposed_forward - local_f), std::max(0.0, sum.exposed_backward - local_b));
  time.total = rank_seconds(time.linear, has_local, local_forward, sum);
  return time;
}

double CostModel::seconds_alone(std::int64_t length, int ring_size, Link link) const {
  if (ring_size == 1) return rank_seconds(linear_seconds(length), true, attention_forward(length, 1, 0), {});
  const RingHops hops = ring_hops(ring_size, hop_bytes(length, ring_size), link);
  double slowest = 0.0;
  // Among equal shards the causal area is linear in the position: the slowest is at an end of its group.
  for (const ShardGroup& group : zigzag_groups(length, ring_size)) {
    if (group.first == group.end) continue;
    const double linear = linear_seconds(group.tokens);
    for (const int position : {group.first, group.end - 1}) {
      const RingTime time = ring_time(hops, attention_forward(length, ring_size, position));
      slowest = std::max(slowest, rank_seconds(linear, false, 0.0, time));
    }
  }
  return slowest;
}

double CostModel::flops(std::int64_t tokens, std::int64_t causal_area) const {
  const auto t = static_cast<double>(tokens);
  // Without causal halving every query meets every key: S^2 = 2 S(S+1)/2 - S, over all shards of a sequence as well.
  const auto area = static_cast<double>(causal_area);
  const double pairs = flops_ == FlopsModel::paper ? 2.0 * area - t : area;
  return layers_ * ((forward_passes_ + backward_linear) * linear_flops_ * t +
                    (forward_passes_ + backward_attention) * attention_flops_ * pairs) +
         (1.0 + backward_linear) * model_.head_flops_per_token() * t;
}

}  // namespace skrull
