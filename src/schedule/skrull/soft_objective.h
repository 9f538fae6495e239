#pragma once
// What the local search minimises: the schedule's time, softened so that a move counts that relieves any slow rank.

#include <vector>

#include "draft_schedule.h"

namespace skrull {

/// Of a micro-batch the p-mean of its ranks' seconds, of a replica the sum over its micro-batches, of the schedule the
/// p-mean over its replicas; p = 2^sharpness, so that powers and roots are repeated squares and square roots. For large
/// p these are maxima. Follows one draft: every change of the draft has to be told. Must not outlive it.
class SoftObjective {
 public:
  SoftObjective(const DraftSchedule& draft, int sharpness);

  /// Starts anew with another sharpness.
  void rebuild(int sharpness);

  /// Mean over replicas of (soft seconds / scale)^p: rises and falls with the objective; a relative change of x in the
  /// objective is one of about p x here.
  double value() const { return value_; }
  double exponent() const { return static_cast<double>(1 << sharpness_); }
  /// Seconds of the slowest replica, exactly.
  double seconds() const;
  double replica_seconds(int replica) const { return replicas_[static_cast<std::size_t>(replica)].seconds; }
  double micro_batch_seconds(int index) const { return micro_batches_[static_cast<std::size_t>(index)].seconds; }
  int slowest_replica() const;

  struct RankChange {
    int micro_batch = 0;
    int rank = 0;
    double seconds = 0.0;
  };
  /// The value if two ranks of micro-batches that stay occupied had these seconds.
  double value_with(const RankChange& a, const RankChange& b) const;

  /// Brings micro-batches whose ranks have changed up to date (`a` and `b` may be the same).
  void update(int a, int b);
  /// Takes the last update() back, once the draft is as before it.
  void revert();
  /// Takes a micro-batch off its replica before the draft moves it; attach() after that, then refresh_value().
  void detach(int micro_batch);
  void attach(int micro_batch);
  void refresh_value();

 private:
  struct MicroBatch {
    double scale = 1.0;         ///< seconds that count as 1
    double mean_power = 0.0;    ///< of seconds / scale
    double soft = 0.0;          ///< scale x root of mean_power
    double seconds = 0.0;       ///< of the slowest rank
    std::vector<double> power;  ///< per rank
    bool occupied = false;
  };
  struct Replica {
    int occupied = 0;      ///< micro-batches
    double soft = 0.0;     ///< sum
    double seconds = 0.0;  ///< sum
    double power = 0.0;    ///< of soft / scale
  };

  double power(double x) const;
  double root(double x) const;
  double replica_power(double soft) const { return power(soft / scale_); }
  double soft_with(const MicroBatch& micro_batch, double change_of_power_sum) const;
  void measure(int micro_batch);
  void change_power(Replica& replica);

  struct Backup {
    int index = -1;
    MicroBatch micro_batch;
    int replica_index = 0;
    Replica replica;
  };
  void keep(Backup& backup, int micro_batch) const;
  void restore(const Backup& backup);

  const DraftSchedule* draft_;
  int sharpness_;
  double scale_ = 1.0;
  double value_ = 0.0;
  std::vector<MicroBatch> micro_batches_;
  std::vector<Replica> replicas_;
  Backup backup_a_;
  Backup backup_b_;
  double backup_value_ = 0.0;
};

}  // namespace skrull
