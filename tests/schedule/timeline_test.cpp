#include "skrull/schedule/timeline.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "simulator_cases.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

constexpr double plot_width = 1140.0;

/// Two replicas of four ranks; overlapping rings and local sequences; the second replica has an empty micro-batch.
Plan mixed_plan() {
  PlannedMicroBatch rings{{{2, 3}, {4}, {}, {}}, {{0, {0, 1, 2}}, {1, {2, 3}}}};
  PlannedMicroBatch local{{{5}, {6}, {7}, {8}}, {}};
  PlannedMicroBatch wide{{{}, {}, {}, {10}}, {{9, {0, 1, 2, 3}}}};
  PlannedMicroBatch empty{{{}, {}, {}, {}}, {}};
  return {"mixed",
          {2, 4, 4},
          30000,
          {9000, 4000, 700, 300, 1500, 3000, 2500, 2800, 900, 20000, 600},
          {{rings, local}, {wide, empty}}};
}

Simulation recorded(const Plan& plan, const CostModel& cost, int stage = 0, bool wait = true) {
  return simulate_step(plan, cost, {stage, wait, true});
}

/// What breaks the rules of XML in `text`, "" if nothing: tags nest, attributes are quoted, no stray '<' or '&'.
std::string xml_fault(const std::string& text) {
  static const std::regex tag(R"svg(<(/?)([a-zA-Z]+)((?:\s+[a-zA-Z:\-0-9]+="[^"<]*")*)\s*(/?)>)svg");
  static const std::regex entity("&(?!(amp|lt|gt|quot);)");
  std::vector<std::string> open;
  std::size_t at = 0;
  if (std::regex_search(text, entity)) return "an unknown entity";
  while ((at = text.find('<', at)) != std::string::npos) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return "a tag that does not end";
    const std::string candidate = text.substr(at, end + 1 - at);
    std::smatch match;
    if (!std::regex_match(candidate, match, tag)) return candidate;
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != match[2].str()) return "closes another tag: " + candidate;
      open.pop_back();
      if (open.empty() && text.find('<', end) != std::string::npos) return "text after the root";
    } else if (match[4].length() == 0) {
      open.push_back(match[2].str());
    }
    at = end;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

/// The text of the groups of this class (which hold no groups).
std::vector<std::string> groups(const std::string& svg, const std::string& css_class) {
  std::vector<std::string> result;
  const std::string begin = "<g class=\"" + css_class + "\">";
  for (std::size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    result.push_back(svg.substr(at, svg.find("</g>", at) - at));
  }
  return result;
}

struct Rectangle {
  std::string css_class;
  double x = 0.0;
  double width = 0.0;
};

std::vector<Rectangle> rectangles(const std::string& svg) {
  static const std::regex pattern(R"svg(<rect class="([a-z]+)" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)")svg");
  std::vector<Rectangle> result;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at) {
    result.push_back({(*at)[1].str(), std::stod((*at)[2].str()), std::stod((*at)[3].str())});
  }
  return result;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Lanes cover the step without a gap or an overlap, and each kind has as many pixels as its seconds.
void check_lanes(const std::string& svg, const Simulation& simulation) {
  const double pixels_per_second = plot_width / simulation.step_seconds;
  const std::vector<std::string> lanes = groups(svg, "lane");
  std::size_t lane = 0;
  for (const auto& replica : simulation.micro_batches) {
    for (std::size_t rank = 0; rank < replica.front().ranks.size(); ++rank) {
      REQUIRE(lane < lanes.size());
      std::map<std::string, double> width;
      double end = 74.0;
      for (const Rectangle& rectangle : rectangles(lanes[lane])) {
        width[rectangle.css_class] += rectangle.width;
        if (rectangle.css_class == "hop") continue;
        REQUIRE(rectangle.x == Approx(end).margin(0.002));
        end = rectangle.x + rectangle.width;
      }
      CHECK(end == Approx(74.0 + plot_width).margin(0.002));
      const auto expect = [&](const std::string& css_class, std::vector<Activity> activities) {
        double seconds = 0.0;
        for (const SimulatedMicroBatch& micro_batch : replica) {
          for (const Activity activity : activities) seconds += micro_batch.ranks[rank].of(activity);
        }
        CHECK(width[css_class] == Approx(seconds * pixels_per_second).margin(0.1));
      };
      expect("linear", {Activity::linear, Activity::head});
      expect("fixed", {Activity::fixed});
      expect("local", {Activity::local_attention});
      expect("ring", {Activity::ring_attention});
      expect("hop", {Activity::hop});
      CHECK(width["sync"] == Approx(simulation.gradient_sync_seconds * pixels_per_second).margin(0.002));
      ++lane;
    }
  }
  CHECK(lane == lanes.size());
}

/// Complete slices of a trace by (process, thread).
std::map<std::pair<int, int>, std::vector<Json>> slices(const Json& trace) {
  std::map<std::pair<int, int>, std::vector<Json>> result;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") result[{event.at("pid").get<int>(), event.at("tid").get<int>()}].push_back(event);
  }
  return result;
}

/// Slices of a thread, in the order of the file, nest: one that begins inside another ends inside it.
void check_nesting(std::vector<Json> events) {
  std::stable_sort(events.begin(), events.end(), [](const Json& a, const Json& b) { return a.at("ts") < b.at("ts"); });
  std::vector<double> ends;
  for (const Json& event : events) {
    const double begin = event.at("ts").get<double>();
    const double end = begin + event.at("dur").get<double>();
    REQUIRE(event.at("dur").get<double>() >= 0.0);
    while (!ends.empty() && ends.back() <= begin + 1e-4) ends.pop_back();
    if (!ends.empty()) REQUIRE(end <= ends.back() + 1e-4);
    ends.push_back(end);
  }
}

}  // namespace

TEST_CASE("the XML check finds faults") {
  CHECK(xml_fault("<a x=\"1\"><b/>text &amp; more</a>").empty());
  CHECK(xml_fault("<a><b></a></b>") == "closes another tag: </a>");
  CHECK(xml_fault("<a><b></b>") == "not closed: a");
  CHECK(xml_fault("<a x=1></a>") == "<a x=1>");
  CHECK(xml_fault("<a>R&D</a>") == "an unknown entity");
}

TEST_CASE("SVG of a step: by kind, with a close-up") {
  const Plan plan = mixed_plan();
  for (const int stage : {0, 3}) {
    const Simulation simulation = recorded(plan, qwen_cost(), stage);
    const std::string svg = timeline_svg(simulation, plan);
    CHECK(xml_fault(svg).empty());
    check_lanes(svg, simulation);
    // One boundary for each micro-batch that is not empty, straight through its replica.
    CHECK(count(svg, "class=\"boundary\"") == 3);
    CHECK(count(svg, ">replica 1</text>") == 1);
    CHECK(count(svg, ">micro-batch 1</text>") == 1);
    CHECK(svg.find("<script") == std::string::npos);
    // Of the longest micro-batch with rings; both windows together are as wide as the plot without the gap.
    const std::vector<std::string> close_up = groups(svg, "close-up");
    REQUIRE(close_up.size() == 1);
    CHECK(close_up[0].find("Close-up: layer 12 of replica 1, micro-batch 0") != std::string::npos);
    double width = 0.0;
    for (const Rectangle& rectangle : rectangles(close_up[0]))
      width += rectangle.css_class == "hop" ? 0.0 : rectangle.width;
    CHECK(width == Approx(4 * (plot_width - 40.0)).margin(0.1));
  }
}

TEST_CASE("SVG of a step without recorded spans has no close-up and the same lanes") {
  const Plan plan = mixed_plan();
  const Simulation simulation = simulate_step(plan, qwen_cost());
  const std::string svg = timeline_svg(simulation, plan);
  CHECK(xml_fault(svg).empty());
  check_lanes(svg, simulation);
  CHECK(groups(svg, "close-up").empty());
  CHECK(groups(svg, "lane") == groups(timeline_svg(recorded(plan, qwen_cost()), plan), "lane"));
}

TEST_CASE("SVG of few layers shows every kernel") {
  const Plan plan{"by hand", {1, 2, 2}, 5, {4, 3}, {{{{{1}, {}}, {{0, {0, 1}}}}}}};
  const Simulation simulation = recorded(plan, unit_cost(1, 10.0));
  const std::string svg = timeline_svg(simulation, plan);
  CHECK(xml_fault(svg).empty());
  check_lanes(svg, simulation);
  // The kernels of "one ring of two ranks by hand: local attention fills the waits": 112 s are 1140 pixels.
  std::vector<std::pair<std::string, int>> drawn;
  for (const Rectangle& rectangle : rectangles(groups(svg, "lane")[0])) {
    drawn.emplace_back(rectangle.css_class, static_cast<int>(std::lround((rectangle.x - 74.0) * 112.0 / plot_width)));
  }
  std::vector<std::pair<std::string, int>> expected{
      {"fixed", 0},  {"linear", 10}, {"local", 15}, {"hop", 15},    {"ring", 22}, {"wait", 25},
      {"ring", 27},  {"linear", 30}, {"fixed", 45}, {"linear", 65}, {"ring", 75}, {"hop", 75},
      {"local", 82}, {"ring", 91},   {"local", 98}, {"hop", 98},    {"wait", 106}};
  std::sort(drawn.begin(), drawn.end());
  std::sort(expected.begin(), expected.end());
  CHECK(drawn == expected);
  CHECK(svg.find("rank 0, micro-batch 0, layer 0 backward: local attention 9 s") != std::string::npos);
  CHECK(svg.find("rank 0, micro-batch 0, layer 0 forward, ring 0, step 1: hops 12 s") != std::string::npos);
}

TEST_CASE("SVG: ranks that do not wait have boundaries of their own") {
  const Plan plan{"by hand", {1, 2, 2}, 5, {5, 1, 1, 5}, {{{{{0}, {1}}, {}}, {{{2}, {3}}, {}}}}};
  const std::string svg = timeline_svg(recorded(plan, unit_cost(1), 0, false), plan);
  const std::regex stepped(R"svg(class="boundary" d="M[0-9. ]+V[0-9.]+M[0-9. ]+V[0-9.]+")svg");
  CHECK(std::distance(std::sregex_iterator(svg.begin(), svg.end(), stepped), {}) == 1);
}

TEST_CASE("SVG: title, odd policy names, nothing to do, many ranks") {
  Plan plan = mixed_plan();
  plan.policy = "a<b> & \"c\"";
  const Simulation simulation = recorded(plan, qwen_cost());
  const std::string svg = timeline_svg(simulation, plan);
  CHECK(xml_fault(svg).empty());
  CHECK(svg.find(fmt::format("a&lt;b&gt; &amp; &quot;c&quot;: a step of {:.4g} ms on 2 x 4 ranks",
                             simulation.step_seconds * 1e3)) != std::string::npos);
  CHECK(svg.find("11 sequences, 45,300 tokens, 2 micro-batches") != std::string::npos);

  const Plan nothing{"none", {2, 1, 1}, 300, {}, {{}, {}}};
  CHECK(xml_fault(timeline_svg(recorded(nothing, unit_cost(1)), nothing)).empty());

  Plan many{"many",
            {8, 16, 8},
            100,
            {},
            std::vector(8, std::vector{PlannedMicroBatch{std::vector<std::vector<std::int64_t>>(16), {}}})};
  for (std::int64_t rank = 0; rank < 128; ++rank) {
    many.lengths.push_back(1 + rank % 100);
    many.micro_batches[static_cast<std::size_t>(rank / 16)][0].local[static_cast<std::size_t>(rank % 16)] = {rank};
  }
  const Simulation wide = recorded(many, qwen_cost());
  const std::string wide_svg = timeline_svg(wide, many);
  CHECK(xml_fault(wide_svg).empty());
  check_lanes(wide_svg, wide);
}

TEST_CASE("trace: every kernel and hop on the thread of its stream") {
  const Plan plan = mixed_plan();
  const Simulation simulation = recorded(plan, qwen_cost(Recompute::full), 3);
  const Json trace = Json::parse(timeline_trace(simulation, plan, {24}));
  const auto threads = slices(trace);
  // A compute and a communication thread per rank, one thread of collectives.
  CHECK(threads.size() == 2 * 8 + 1);
  std::map<std::string, double> seconds;
  for (const auto& [thread, events] : threads) {
    check_nesting(events);
    if (thread.first == 2) continue;
    for (const Json& event : events) {
      const std::string name = event.at("name").get<std::string>();
      CHECK((name.rfind("hop", 0) == 0) == (thread.second % 2 == 1));
      for (const Activity activity : all_activities) {
        if (name.rfind(name_of(activity), 0) == 0)
          seconds[std::string(name_of(activity))] += event.at("dur").get<double>() * 1e-6;
      }
    }
  }
  for (const Activity activity : all_activities) {
    double sum = 0.0;
    for (const Span& span : simulation.spans) sum += span.activity == activity ? span.end - span.begin : 0.0;
    // Every slice is rounded to nanoseconds.
    CHECK(seconds[std::string(name_of(activity))] ==
          Approx(sum).margin(2e-9 * static_cast<double>(simulation.spans.size())));
  }
  const auto& first = threads.at({0, 0});
  CHECK(first[0].at("name") == "micro-batch 0");
  const auto named = [&](const std::string& name) {
    return *std::find_if(first.begin(), first.end(), [&](const Json& event) { return event.at("name") == name; });
  };
  CHECK(named("layer 23 recompute").at("dur").get<double>() > 0.0);
  const Json ring = named("ring attention 2, ring 0-1-2");
  CHECK(ring.at("args").at("sequences") == Json{0});
  CHECK(ring.at("args").at("lengths") == Json{9000});
  CHECK(ring.at("args").at("layer") == 0);
  CHECK(named("local attention").at("args").at("sequences") == Json{2, 3});
  CHECK(threads.at({2, 0})[0].at("name") == "gather layer 0");
}

TEST_CASE("trace: layers without detail are one slice of a pass") {
  const Plan plan = mixed_plan();
  const Simulation simulation = recorded(plan, qwen_cost());
  const auto threads = slices(Json::parse(timeline_trace(simulation, plan)));
  std::map<std::string, int> names;
  for (const auto& [thread, events] : threads) {
    check_nesting(events);
    if (thread == std::pair{1, 0}) {
      for (const Json& event : events) ++names[event.at("name").get<std::string>()];
    }
  }
  CHECK(names["layers 2-23 forward"] == 1);
  CHECK(names["layers 2-23 backward"] == 1);
  CHECK(names["layer 0 forward"] == 1);
  CHECK(names["layer 1 backward"] == 1);
  CHECK(names["linear"] == 4);
  CHECK(names["head"] == 1);
  CHECK(names["gradient sync, exposed"] == 1);
  CHECK(names["micro-batch 0"] == 1);
  CHECK(names.count("micro-batch 1") == 0);
  CHECK(timeline_trace(simulation, plan) == timeline_trace(recorded(plan, qwen_cost()), plan));
  CHECK_THROWS_AS(timeline_trace(simulate_step(plan, qwen_cost()), plan), RunFailure);
}
