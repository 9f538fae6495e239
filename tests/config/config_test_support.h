#pragma once
// What the tests of the config layer share.

#include <algorithm>
#include <string>
#include <vector>

#include "skrull/config/config_parser.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "support/catch.h"
#include "support/support.h"

namespace skrull::test {

/// The overrides that a training config needs at least.
inline std::vector<ConfigOverride> with_required(std::vector<ConfigOverride> more = {}) {
  std::vector<ConfigOverride> overrides = {
      {"model_name_or_path", "models/a"}, {"dataset", "a.jsonl"}, {"output_dir", "runs/a"}};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

/// `json` as a config file, nothing required.
inline TrainConfig parse_text(const std::string& json, const std::vector<ConfigOverride>& overrides = {},
                              const std::vector<std::string>& required = {}) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "config.json", json);
  return parse_config({.file = folder / "config.json", .overrides = overrides, .problems = {}}, required);
}

/// The lines of the error that `action` throws, without the folder of temporary files; empty when it throws none.
template <class Action>
std::vector<std::string> problems_of(const Action& action) {
  std::string message;
  try {
    action();
    return {};
  } catch (const InvalidInput& error) {
    message = error.what();
  }
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= message.size();) {
    const std::size_t end = std::min(message.find('\n', begin), message.size());
    std::string line = message.substr(begin, end - begin);
    const auto file = line.find("config.json");
    const auto folder = line.find('/');
    if (file != std::string::npos && folder < file) line.erase(folder, file - folder);
    line.erase(0, line.find_first_not_of(' '));
    lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

inline std::vector<std::string> problems_in(const std::string& json, const std::vector<ConfigOverride>& overrides = {},
                                            const std::vector<std::string>& required = {}) {
  return problems_of([&] { parse_text(json, overrides, required); });
}

/// The one problem there is, without the words that introduce it.
inline std::string problem_in(const std::string& json, const std::vector<ConfigOverride>& overrides = {},
                              const std::vector<std::string>& required = {}) {
  const auto lines = problems_in(json, overrides, required);
  const std::string introduction = "the configuration is wrong: ";
  REQUIRE(lines.size() == 1);
  REQUIRE(lines.front().find(introduction) == 0);
  return lines.front().substr(introduction.size());
}

inline void check_contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace skrull::test
