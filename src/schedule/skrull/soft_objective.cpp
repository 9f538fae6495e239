#include "soft_objective.h"

#include <algorithm>
#include <cmath>

namespace skrull {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

/// A micro-batch is measured anew when its time leaves this share of its scale: powers must neither overflow nor
/// vanish.
constexpr double least_scale_use = 0.8;
constexpr double most_scale_use = 1.25;

}  // namespace

SoftObjective::SoftObjective(const DraftSchedule& draft, int sharpness) : draft_(&draft), sharpness_(sharpness) {
  micro_batches_.resize(at(draft.micro_batch_count()));
  for (MicroBatch& micro_batch : micro_batches_) micro_batch.power.resize(at(draft.context_parallel()));
  replicas_.resize(at(draft.data_parallel()));
  rebuild(sharpness);
}

void SoftObjective::rebuild(int sharpness) {
  sharpness_ = sharpness;
  scale_ = draft_->schedule_seconds();
  std::fill(replicas_.begin(), replicas_.end(), Replica{});
  for (int i = 0; i < draft_->micro_batch_count(); ++i) {
    micro_batches_[at(i)].scale = 0.0;
    attach(i);
  }
  refresh_value();
}

double SoftObjective::power(double x) const {
  for (int i = 0; i < sharpness_; ++i) x *= x;
  return x;
}

double SoftObjective::root(double x) const {
  for (int i = 0; i < sharpness_; ++i) x = std::sqrt(x);
  return x;
}

double SoftObjective::seconds() const {
  double slowest = 0.0;
  for (const Replica& replica : replicas_) slowest = std::max(slowest, replica.seconds);
  return slowest;
}

int SoftObjective::slowest_replica() const {
  const auto slowest = std::max_element(replicas_.begin(), replicas_.end(),
                                        [](const Replica& a, const Replica& b) { return a.seconds < b.seconds; });
  return static_cast<int>(slowest - replicas_.begin());
}

void SoftObjective::measure(int index) {
  const DraftMicroBatch& draft = draft_->micro_batch(index);
  MicroBatch& micro_batch = micro_batches_[at(index)];
  micro_batch.occupied = draft.sequences > 0;
  micro_batch.seconds = micro_batch.soft = micro_batch.mean_power = 0.0;
  if (!micro_batch.occupied) return;
  for (const DraftRank& rank : draft.ranks) micro_batch.seconds = std::max(micro_batch.seconds, rank.seconds);
  if (micro_batch.seconds < least_scale_use * micro_batch.scale ||
      micro_batch.seconds > most_scale_use * micro_batch.scale) {
    micro_batch.scale = micro_batch.seconds;
  }
  const double per_scale = 1.0 / micro_batch.scale;
  for (std::size_t rank = 0; rank < draft.ranks.size(); ++rank) {
    micro_batch.power[rank] = draft.ranks[rank].seconds * per_scale;
  }
  for (int i = 0; i < sharpness_; ++i) {
    for (double& x : micro_batch.power) x *= x;
  }
  for (const double x : micro_batch.power) micro_batch.mean_power += x;
  micro_batch.mean_power /= static_cast<double>(draft.ranks.size());
  micro_batch.soft = micro_batch.scale * root(micro_batch.mean_power);
}

void SoftObjective::detach(int index) {
  const MicroBatch& micro_batch = micro_batches_[at(index)];
  Replica& replica = replicas_[at(draft_->micro_batch(index).replica)];
  if (micro_batch.occupied) --replica.occupied;
  replica.soft -= micro_batch.soft;
  replica.seconds -= micro_batch.seconds;
}

void SoftObjective::attach(int index) {
  measure(index);
  const MicroBatch& micro_batch = micro_batches_[at(index)];
  Replica& replica = replicas_[at(draft_->micro_batch(index).replica)];
  if (micro_batch.occupied) ++replica.occupied;
  replica.soft += micro_batch.soft;
  replica.seconds += micro_batch.seconds;
}

void SoftObjective::keep(Backup& backup, int index) const {
  backup.index = index;
  backup.micro_batch = micro_batches_[at(index)];
  backup.replica_index = draft_->micro_batch(index).replica;
  backup.replica = replicas_[at(backup.replica_index)];
}

void SoftObjective::restore(const Backup& backup) {
  micro_batches_[at(backup.index)] = backup.micro_batch;
  replicas_[at(backup.replica_index)] = backup.replica;
}

void SoftObjective::update(int a, int b) {
  backup_value_ = value_;
  keep(backup_a_, a);
  keep(backup_b_, b);
  detach(a);
  attach(a);
  if (b != a) {
    detach(b);
    attach(b);
  }
  change_power(replicas_[at(backup_a_.replica_index)]);
  change_power(replicas_[at(backup_b_.replica_index)]);
  // Where the slowest replica's power has left the sum, what remains is rounding.
  constexpr double least_share = 1e-6;
  if (value_ < least_share * backup_value_) refresh_value();
}

void SoftObjective::change_power(Replica& replica) {
  const double power = replica_power(replica.soft);
  value_ += (power - replica.power) / static_cast<double>(replicas_.size());
  replica.power = power;
}

void SoftObjective::revert() {
  restore(backup_a_);
  restore(backup_b_);
  value_ = backup_value_;
}

void SoftObjective::refresh_value() {
  value_ = 0.0;
  for (Replica& replica : replicas_) {
    replica.power = replica_power(replica.soft);
    value_ += replica.power;
  }
  value_ /= static_cast<double>(replicas_.size());
}

double SoftObjective::soft_with(const MicroBatch& micro_batch, double change_of_power_sum) const {
  const double change = change_of_power_sum / static_cast<double>(micro_batch.power.size());
  return micro_batch.scale * root(std::max(0.0, micro_batch.mean_power + change));
}

double SoftObjective::value_with(const RankChange& a, const RankChange& b) const {
  const MicroBatch& first = micro_batches_[at(a.micro_batch)];
  const MicroBatch& second = micro_batches_[at(b.micro_batch)];
  const Replica& replica_a = replicas_[at(draft_->micro_batch(a.micro_batch).replica)];
  const double change_a = power(a.seconds / first.scale) - first.power[at(a.rank)];
  const double change_b = power(b.seconds / second.scale) - second.power[at(b.rank)];
  const auto ranks = static_cast<double>(first.power.size());
  const auto replicas = static_cast<double>(replicas_.size());
  if (a.micro_batch == b.micro_batch) {
    // Alone on its replica, the micro-batch's root and the replica's power cancel.
    const double power_a = replica_a.occupied == 1 && first.mean_power > 0.0
                               ? replica_a.power * (1.0 + (change_a + change_b) / (ranks * first.mean_power))
                               : replica_power(replica_a.soft - first.soft + soft_with(first, change_a + change_b));
    return value_ + (power_a - replica_a.power) / replicas;
  }
  const int index_b = draft_->micro_batch(b.micro_batch).replica;
  const Replica& replica_b = replicas_[at(index_b)];
  if (&replica_a == &replica_b) {
    const double soft =
        replica_a.soft - first.soft - second.soft + soft_with(first, change_a) + soft_with(second, change_b);
    return value_ + (replica_power(soft) - replica_a.power) / replicas;
  }
  const auto power_of = [&](const Replica& replica, const MicroBatch& micro_batch, double change) {
    return replica.occupied == 1 && micro_batch.mean_power > 0.0
               ? replica.power * (1.0 + change / (ranks * micro_batch.mean_power))
               : replica_power(replica.soft - micro_batch.soft + soft_with(micro_batch, change));
  };
  return value_ + (power_of(replica_a, first, change_a) - replica_a.power + power_of(replica_b, second, change_b) -
                   replica_b.power) /
                      replicas;
}

}  // namespace skrull
