#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/schedule/hardware_profile.h"

namespace skrull {
namespace {

LogLogCurve read_curve(const Json& json, LogLogCurve::BelowFirst below) {
  std::vector<LogLogCurve::Point> points;
  for (const Json& point : json) points.push_back({point.at(0).get<double>(), point.at(1).get<double>()});
  return {std::move(points), below};
}

LinkRate read_link(const Json& json) {
  return {json.at("bytes_per_s").get<double>(), json.at("latency_s").get<double>()};
}

}  // namespace

HardwareProfile parse_hardware_profile(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    using Below = LogLogCurve::BelowFirst;
    HardwareProfile profile;
    profile.name = json.at("name").get<std::string>();
    profile.linear_peak_flops = read_curve(json.at("linear").at("peak_flops_by_hidden"), Below::constant);
    profile.linear_efficiency = read_curve(json.at("linear").at("efficiency"), Below::proportional);
    profile.attention_peak_flops = read_curve(json.at("attention").at("peak_flops_by_head_dim"), Below::constant);
    profile.attention_efficiency = read_curve(json.at("attention").at("efficiency"), Below::proportional);
    const Json& overhead = json.at("overhead");
    profile.overhead = {
        overhead.at("layer_forward_s").get<double>(),           overhead.at("layer_backward_s").get<double>(),
        overhead.at("local_attention_forward_s").get<double>(), overhead.at("local_attention_backward_s").get<double>(),
        overhead.at("ring_step_forward_s").get<double>(),       overhead.at("ring_step_backward_s").get<double>()};
    profile.intra_node = read_link(json.at("links").at("intra"));
    profile.inter_node = read_link(json.at("links").at("inter"));
    if (json.contains("grad_sync")) {
      const Json& sync = json.at("grad_sync");
      profile.gradient_sync =
          GradientSync{sync.at("bus_bytes_per_s").get<double>(), sync.at("exposed_fraction").get<double>()};
    }
    return profile;
  } catch (const Json::exception& e) {
    throw_invalid_input("{}: {}", name, e.what());
  }
}

HardwareProfile read_hardware_profile(const std::filesystem::path& file) {
  return parse_hardware_profile(read_file(file), file.string());
}

}  // namespace skrull
