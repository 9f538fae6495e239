#include <algorithm>
#include <array>

#include "checked_json.h"
#include "shipped_profiles.h"
#include "skrull/core/file.h"
#include "skrull/core/text.h"
#include "skrull/schedule/hardware_profile.h"

namespace skrull {
namespace {

constexpr std::string_view profile_format = "skrull-profile/1";
/// How the reason of a number begins.
constexpr std::array<std::string_view, 2> origins{"measured", "assumed"};

/// A list of [position, value]: both positive, positions ascend. With `rises` the values must not fall.
LogLogCurve read_curve(const CheckedJson& json, LogLogCurve::BelowFirst below, bool rises) {
  std::vector<LogLogCurve::Point> points;
  for (const CheckedJson& element : json.elements()) {
    const auto pair = element.elements(2, "a pair [position, value]");
    const LogLogCurve::Point point{pair[0].positive_number(), pair[1].positive_number()};
    if (!points.empty() && point.at <= points.back().at) {
      pair[0].refuse(fmt::format("a position above the one before, {}", points.back().at));
    }
    if (rises && !points.empty() && point.value < points.back().value) {
      pair[1].refuse(fmt::format("a curve that does not fall, at least {}", points.back().value));
    }
    points.push_back(point);
  }
  if (points.empty()) json.fail("expected at least one pair [position, value], got an empty list");
  return {std::move(points), below};
}

void read_rates(const CheckedJson& json, const char* peak_key, LogLogCurve& peak, LogLogCurve& efficiency) {
  json.check_keys({peak_key, "efficiency"});
  peak = read_curve(json.at(peak_key), LogLogCurve::BelowFirst::constant, false);
  efficiency = read_curve(json.at("efficiency"), LogLogCurve::BelowFirst::proportional, true);
}

struct NamedOverhead {
  const char* key;
  double LayerOverhead::*member;
};
constexpr std::array overheads{
    NamedOverhead{"layer_forward_s", &LayerOverhead::layer_forward_s},
    NamedOverhead{"layer_backward_s", &LayerOverhead::layer_backward_s},
    NamedOverhead{"local_attention_forward_s", &LayerOverhead::local_attention_forward_s},
    NamedOverhead{"local_attention_backward_s", &LayerOverhead::local_attention_backward_s},
    NamedOverhead{"ring_step_forward_s", &LayerOverhead::ring_step_forward_s},
    NamedOverhead{"ring_step_backward_s", &LayerOverhead::ring_step_backward_s},
};

LayerOverhead read_overhead(const CheckedJson& json) {
  std::vector<std::string> keys;
  LayerOverhead overhead;
  for (const NamedOverhead& one : overheads) {
    keys.emplace_back(one.key);
    overhead.*one.member = json.at(one.key).number_at_least(0.0);
  }
  json.check_keys(keys);
  return overhead;
}

LinkRate read_link(const CheckedJson& json) {
  json.check_keys({"bytes_per_s", "latency_s"});
  return {json.at("bytes_per_s").positive_number(), json.at("latency_s").number_at_least(0.0)};
}

GradientSync read_gradient_sync(const CheckedJson& json) {
  json.check_keys({"bus_bytes_per_s", "exposed_fraction"});
  const CheckedJson fraction = json.at("exposed_fraction");
  if (fraction.number_at_least(0.0) > 1.0) fraction.refuse("a number from 0 to 1");
  return {json.at("bus_bytes_per_s").positive_number(), fraction.number_at_least(0.0)};
}

void check_comment(const CheckedJson& json) {
  if (json.is_text()) return;
  for (const CheckedJson& line : json.elements()) line.text();
}

/// The parts of a profile that "sources" may speak of.
std::vector<std::string> names_of_numbers() {
  std::vector<std::string> names = {"linear.peak_flops_by_hidden", "linear.efficiency",
                                    "attention.peak_flops_by_head_dim", "attention.efficiency"};
  for (const NamedOverhead& one : overheads) names.push_back(fmt::format("overhead.{}", one.key));
  for (const char* name : {"links.intra", "links.inter", "grad_sync", "device_memory_bytes"}) names.emplace_back(name);
  return names;
}

std::map<std::string, std::string> read_sources(const CheckedJson& json) {
  json.check_keys(names_of_numbers());
  std::map<std::string, std::string> sources;
  for (const auto& [name, value] : json.object().items()) {
    const CheckedJson source = json.at(name);
    const std::string text = source.text();
    const bool known =
        std::any_of(origins.begin(), origins.end(), [&](std::string_view origin) { return text.starts_with(origin); });
    if (!known) source.refuse(fmt::format("a reason that begins with one of: {}", fmt::join(origins, ", ")));
    sources[name] = text;
  }
  return sources;
}

}  // namespace

HardwareProfile parse_hardware_profile(const std::string& text, const std::string& name) {
  const CheckedJsonDocument document(text, name, profile_format);
  const CheckedJson root = document.root();
  root.check_keys({"format", "name", "comment", "linear", "attention", "overhead", "links", "grad_sync",
                   "device_memory_bytes", "sources"});
  HardwareProfile profile;
  profile.name = root.at("name").text();
  if (const auto comment = root.find("comment")) check_comment(*comment);
  read_rates(root.at("linear"), "peak_flops_by_hidden", profile.linear_peak_flops, profile.linear_efficiency);
  read_rates(root.at("attention"), "peak_flops_by_head_dim", profile.attention_peak_flops,
             profile.attention_efficiency);
  profile.overhead = read_overhead(root.at("overhead"));
  const CheckedJson links = root.at("links");
  links.check_keys({"intra", "inter"});
  profile.intra_node = read_link(links.at("intra"));
  profile.inter_node = read_link(links.at("inter"));
  if (const auto sync = root.find("grad_sync")) profile.gradient_sync = read_gradient_sync(*sync);
  if (const auto memory = root.find("device_memory_bytes")) profile.device_memory_bytes = memory->integer(1);
  if (const auto sources = root.find("sources")) profile.sources = read_sources(*sources);
  return profile;
}

std::string hardware_profile_to_json(const HardwareProfile& profile) {
  const auto curve = [](const LogLogCurve& of) {
    OrderedJson points = OrderedJson::array();
    for (const LogLogCurve::Point& point : of.points()) points.push_back({point.at, point.value});
    return points;
  };
  const auto link = [](const LinkRate& rate) {
    return OrderedJson{{"bytes_per_s", rate.bytes_per_s}, {"latency_s", rate.latency_s}};
  };
  OrderedJson json;
  json["format"] = profile_format;
  json["name"] = profile.name;
  json["linear"] = {{"peak_flops_by_hidden", curve(profile.linear_peak_flops)},
                    {"efficiency", curve(profile.linear_efficiency)}};
  json["attention"] = {{"peak_flops_by_head_dim", curve(profile.attention_peak_flops)},
                       {"efficiency", curve(profile.attention_efficiency)}};
  for (const NamedOverhead& one : overheads) json["overhead"][one.key] = profile.overhead.*one.member;
  json["links"] = {{"intra", link(profile.intra_node)}, {"inter", link(profile.inter_node)}};
  if (const auto& sync = profile.gradient_sync) {
    json["grad_sync"] = {{"bus_bytes_per_s", sync->bus_bytes_per_s}, {"exposed_fraction", sync->exposed_fraction}};
  }
  if (profile.device_memory_bytes) json["device_memory_bytes"] = *profile.device_memory_bytes;
  json["sources"] = profile.sources;
  return json.dump(2) + "\n";
}

void write_hardware_profile(const std::filesystem::path& file, const HardwareProfile& profile) {
  write_file_atomically(file, hardware_profile_to_json(profile));
}

HardwareProfile read_hardware_profile(const std::filesystem::path& file) {
  return parse_hardware_profile(read_file(file), file.string());
}

const std::vector<std::string>& shipped_hardware_profiles() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ShippedProfile& profile : shipped_profiles()) all.emplace_back(profile.name);
    return all;
  }();
  return names;
}

HardwareProfile find_hardware_profile(const std::string& name_or_path) {
  for (const ShippedProfile& profile : shipped_profiles()) {
    if (name_or_path == profile.name) {
      return parse_hardware_profile(profile.text, fmt::format("profile {}", profile.name));
    }
  }
  std::error_code ignored;
  if (std::filesystem::exists(name_or_path, ignored)) return read_hardware_profile(name_or_path);
  const std::string near = nearest(name_or_path, shipped_hardware_profiles());
  throw_invalid_input("hardware_profile \"{}\" is neither a file nor a profile that ships ({}){}", name_or_path,
                      fmt::join(shipped_hardware_profiles(), ", "),
                      near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

}  // namespace skrull
