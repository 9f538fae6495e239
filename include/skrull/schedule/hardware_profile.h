#pragma once
// What the scheduler knows of a machine: rates over tokens per kernel, fixed costs, links. JSON "skrull-profile/1".

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace skrull {

/// A positive function of a positive argument, given at ascending points and interpolated linearly in log-log space.
/// Above the last point it is constant; below the first it is constant or falls in proportion to the argument.
class LogLogCurve {
 public:
  struct Point {
    double at = 0.0;
    double value = 0.0;
  };
  enum class BelowFirst { constant, proportional };

  LogLogCurve() = default;
  /// `points` must ascend strictly in `at`, all values > 0 (RunFailure otherwise; files are checked where they are
  /// read).
  LogLogCurve(std::vector<Point> points, BelowFirst below);

  double operator()(double at) const;
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
  std::vector<double> log_at_;
  std::vector<double> log_value_;
  BelowFirst below_ = BelowFirst::constant;
};

/// Point-to-point link between two ranks.
struct LinkRate {
  double bytes_per_s = 0.0;
  double latency_s = 0.0;

  double seconds(double bytes) const { return latency_s + bytes / bytes_per_s; }
};

/// Fixed costs, seconds per layer.
struct LayerOverhead {
  double layer_forward_s = 0.0;
  double layer_backward_s = 0.0;
  double local_attention_forward_s = 0.0;  ///< paid once when a rank has local sequences
  double local_attention_backward_s = 0.0;
  double ring_step_forward_s = 0.0;  ///< paid per ring and step
  double ring_step_backward_s = 0.0;
};

/// The part of the gradient's synchronisation that no schedule changes.
struct GradientSync {
  double bus_bytes_per_s = 0.0;
  double exposed_fraction = 0.0;
};

/// Achieved rates of forward and backward of one layer together; efficiencies are shares of the peak.
struct HardwareProfile {
  std::string name;
  LogLogCurve linear_peak_flops;     ///< over the hidden size
  LogLogCurve linear_efficiency;     ///< over the tokens of a rank
  LogLogCurve attention_peak_flops;  ///< over the head size
  LogLogCurve attention_efficiency;  ///< over the tokens of one sequence, or of its shard
  LayerOverhead overhead;
  LinkRate intra_node;
  LinkRate inter_node;
  std::optional<GradientSync> gradient_sync;
  std::optional<std::int64_t> device_memory_bytes;  ///< what a trainer may use of one rank's device
  /// Where numbers come from: a part such as "linear.efficiency" -> "measured: .." or "assumed: ..".
  std::map<std::string, std::string> sources;
};

/// Reads a profile file. Throws InvalidInput with file, JSON path, what was expected and what was found: missing or
/// unknown keys, wrong types, numbers that are not positive, curves whose points do not ascend, falling efficiencies.
HardwareProfile read_hardware_profile(const std::filesystem::path& file);

/// The same from the text of a file called `name` in messages.
HardwareProfile parse_hardware_profile(const std::string& text, const std::string& name);

/// The text of a profile file, which parse_hardware_profile() reads back.
std::string hardware_profile_to_json(const HardwareProfile& profile);

/// Writes it, atomically.
void write_hardware_profile(const std::filesystem::path& file, const HardwareProfile& profile);

/// Names of the profiles inside the program (configs/hardware).
const std::vector<std::string>& shipped_hardware_profiles();

/// A shipped profile by name, or a profile file by path. Throws InvalidInput that lists the shipped names.
HardwareProfile find_hardware_profile(const std::string& name_or_path);

}  // namespace skrull
