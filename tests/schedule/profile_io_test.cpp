#include <cmath>
#include <string>

#include "data/errors.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/schedule/cost_model.h"
#include "skrull/schedule/hardware_profile.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;

namespace {

std::string shipped_text(const std::string& name) {
  return read_file(std::filesystem::path(SKRULL_SOURCE_DIR) / "configs" / "hardware" / (name + ".profile.json"));
}

template <class Edit>
std::string complaint(const Edit& edit) {
  OrderedJson json = OrderedJson::parse(shipped_text("h100_4x8"));
  edit(json);
  const std::string text = json.dump();
  return invalid_input_of([&] { parse_hardware_profile(text, "h.json"); });
}

}  // namespace

TEST_CASE("the profiles of configs/hardware are part of the program, every number with its source") {
  CHECK(shipped_hardware_profiles() == std::vector<std::string>{"cpu", "h100_4x8", "h200_1x8"});
  for (const std::string& name : shipped_hardware_profiles()) {
    INFO(name);
    const HardwareProfile profile = find_hardware_profile(name);
    CHECK(profile.name == name);
    const OrderedJson json = OrderedJson::parse(shipped_text(name));
    for (const char* part : {"linear", "attention", "overhead", "links"}) {
      for (const auto& [key, value] : json[part].items()) {
        CHECK(profile.sources.contains(fmt::format("{}.{}", part, key)));
      }
    }
    CHECK(profile.sources.contains("grad_sync") == profile.gradient_sync.has_value());
    CHECK(profile.sources.contains("device_memory_bytes") == profile.device_memory_bytes.has_value());
    // A kernel never takes less time for more tokens.
    const CostModel cost({896, 24, 14, 2, 64, 4864, 151936}, profile);
    for (std::int64_t tokens = 1; tokens < 100000; tokens += 1 + tokens / 7) {
      CHECK(cost.linear_forward(tokens) <= cost.linear_forward(tokens + 1) * (1 + 1e-12));
      CHECK(cost.attention_forward(tokens, 1, 0) <= cost.attention_forward(tokens + 1, 1, 0) * (1 + 1e-12));
    }
  }
}

TEST_CASE("h100_4x8 holds the numbers of the reference profile") {
  const auto reference = test::reference_data("../schedule/h100_4x8.profile.json");
  if (!reference) return;
  const OrderedJson ours = OrderedJson::parse(shipped_text("h100_4x8"));
  const OrderedJson theirs = OrderedJson::parse(read_file(*reference));
  for (const char* part : {"linear", "attention", "overhead", "links", "grad_sync"}) CHECK(ours[part] == theirs[part]);
  CHECK(read_hardware_profile(*reference).linear_efficiency(512) == Approx(0.6));
}

TEST_CASE("a profile is found by its name or its path") {
  const test::TemporaryFolder folder;
  OrderedJson json = OrderedJson::parse(shipped_text("cpu"));
  json["name"] = "mine";
  write_json_file(folder / "p.json", json);
  CHECK(find_hardware_profile((folder / "p.json").string()).name == "mine");
  CHECK(invalid_input_of([] { find_hardware_profile("h100_4x9"); }) ==
        "hardware_profile \"h100_4x9\" is neither a file nor a profile that ships (cpu, h100_4x8, h200_1x8); did you "
        "mean h100_4x8?");
}

TEST_CASE("malformed profiles are refused with path, expected and got") {
  using J = OrderedJson;
  CHECK(complaint([](J&) {}) == "(nothing thrown)");
  CHECK(complaint([](J& j) { j["comment"] = {"one", "two"}; }) == "(nothing thrown)");
  CHECK(complaint([](J& j) { j["format"] = "skrull-profile/2"; }) ==
        R"(h.json: format: expected "skrull-profile/1", got the string "skrull-profile/2")");
  CHECK(
      complaint([](J& j) { j["overhaed"] = 1; }) ==
      "h.json: unknown key \"overhaed\"; did you mean \"overhead\"?; known: format, name, comment, linear, attention, "
      "overhead, links, grad_sync, device_memory_bytes, sources");
  CHECK(complaint([](J& j) { j["overhead"].erase("layer_forward_s"); }) ==
        R"(h.json: overhead: the key "layer_forward_s" is missing)");
  CHECK(contains(complaint([](J& j) { j["overhead"]["ring"] = 1; }), "h.json: overhead: unknown key \"ring\""));
  CHECK(complaint([](J& j) { j["overhead"]["layer_forward_s"] = "6e-5"; }) ==
        R"(h.json: overhead.layer_forward_s: expected a number, got the string "6e-5")");
  CHECK(complaint([](J& j) { j["overhead"]["layer_forward_s"] = -1e-6; }) ==
        "h.json: overhead.layer_forward_s: expected a number of at least 0, got the number -1e-06");
  CHECK(complaint([](J& j) { j["links"]["intra"]["bytes_per_s"] = 0; }) ==
        "h.json: links.intra.bytes_per_s: expected a number greater than 0, got the number 0");
  CHECK(complaint([](J& j) { j["links"]["intra"]["bytes_per_s"] = nullptr; }) ==
        "h.json: links.intra.bytes_per_s: expected a number, got null");
  CHECK(complaint([](J& j) { j["links"].erase("inter"); }) == R"(h.json: links: the key "inter" is missing)");
  CHECK(complaint([](J& j) { j["grad_sync"]["exposed_fraction"] = 1.5; }) ==
        "h.json: grad_sync.exposed_fraction: expected a number from 0 to 1, got the number 1.5");
  CHECK(complaint([](J& j) { j["device_memory_bytes"] = 0.5; }) ==
        "h.json: device_memory_bytes: expected a whole number of at least 1, got the number 0.5");
  CHECK(complaint([](J& j) { j["sources"]["linear.efficiency"] = "guessed"; }) ==
        "h.json: sources.linear.efficiency: expected a reason that begins with one of: measured, assumed, got the "
        "string \"guessed\"");
  CHECK(contains(complaint([](J& j) { j["sources"]["linear"] = "assumed"; }), "h.json: sources: unknown key"));
  CHECK(contains(invalid_input_of([] { parse_hardware_profile("{\"format\": NaN}", "h.json"); }),
                 "h.json: line 1, column"));
  CHECK(contains(invalid_input_of([] { parse_hardware_profile("{\"format\": 1e999}", "h.json"); }), "h.json: "));
}

TEST_CASE("curves of a profile ascend") {
  using J = OrderedJson;
  CHECK(complaint([](J& j) { j["linear"]["efficiency"] = J::array(); }) ==
        "h.json: linear.efficiency: expected at least one pair [position, value], got an empty list");
  CHECK(complaint([](J& j) { j["linear"]["efficiency"][1] = 5; }) ==
        "h.json: linear.efficiency[1]: expected a pair [position, value], got the number 5");
  CHECK(complaint([](J& j) {
          j["linear"]["efficiency"][1] = {1, 2, 3};
        }) == "h.json: linear.efficiency[1]: expected a pair [position, value], got a list of 3");
  CHECK(complaint([](J& j) { j["linear"]["efficiency"][1][0] = 16; }) ==
        "h.json: linear.efficiency[1][0]: expected a position above the one before, 16, got the number 16");
  CHECK(complaint([](J& j) { j["attention"]["efficiency"][3][1] = 0.01; }) ==
        "h.json: attention.efficiency[3][1]: expected a curve that does not fall, at least 0.12, got the number 0.01");
  CHECK(complaint([](J& j) { j["attention"]["efficiency"][0][1] = 0; }) ==
        "h.json: attention.efficiency[0][1]: expected a number greater than 0, got the number 0");
  // A larger head size may be slower.
  CHECK(complaint([](J& j) { j["attention"]["peak_flops_by_head_dim"][1][1] = 1e14; }) == "(nothing thrown)");
}
