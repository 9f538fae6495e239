#include "skrull/config/config_parser.h"

#include <algorithm>
#include <map>
#include <set>

#include "config_rules.h"
#include "option_table.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::string_view command_line = "command line";
/// Editors look for the schema of a JSON file under this key.
constexpr std::string_view schema_key = "$schema";

/// Collects a config and everything that is wrong with it.
class ConfigReader {
 public:
  explicit ConfigReader(const ConfigSource& source) : source_(source) {}

  void read() {
    if (source_.file) read_file(*source_.file);
    for (const std::string& problem : source_.problems)
      problems_.push_back(fmt::format("{}: {}", command_line, problem));
    for (const auto& [key, value] : source_.overrides) {
      if (const Option* option = find_option(key)) {
        assign(*option, option->value->from_text(value), std::string(command_line), key);
      } else {
        report(std::string(command_line), key, "unknown key" + suggestion_for(key));
      }
    }
  }

  void check_required(const std::vector<std::string>& required) {
    if (file_is_unreadable_) return;
    for (const std::string& name : required) {
      const Option* option = find_option(name);
      require(option != nullptr, "a command requires the option {}, which does not exist", name);
      if (wrong_.contains(option->name)) continue;
      if (given_.contains(option->name) && !option->value->is_empty(config_)) continue;
      report(source_.file ? source_.file->string() : std::string(command_line), name,
             "is required but missing; set it in the file or as " + name + "=VALUE");
    }
  }

  void check_rules() {
    for (const ConfigRule& rule : config_rules()) {
      const auto is_wrong = [&](std::string_view name) { return wrong_.contains(name); };
      if (std::any_of(rule.options.begin(), rule.options.end(), is_wrong)) continue;
      const std::string violation = rule.violation(config_);
      if (violation.empty()) continue;
      const auto origin = given_.find(rule.options.front());
      report(origin == given_.end() ? "default" : origin->second, std::string(rule.options.front()), violation);
    }
  }

  TrainConfig result() const {
    if (problems_.empty()) return config_;
    if (problems_.size() == 1) throw InvalidInput("the configuration is wrong: " + problems_.front());
    throw_invalid_input("the configuration has {} problems:\n  {}", problems_.size(), fmt::join(problems_, "\n  "));
  }

 private:
  void report(const std::string& origin, const std::string& path, const std::string& message) {
    problems_.push_back(fmt::format("{}: {}: {}", origin, path, message));
  }

  void read_file(const std::filesystem::path& file) {
    OrderedJson json;
    std::vector<std::string> repeated;
    try {
      json = read_ordered_json_file(file, repeated);
    } catch (const InvalidInput& error) {
      problems_.emplace_back(error.what());
      file_is_unreadable_ = true;
      return;
    }
    if (!json.is_object()) {
      problems_.push_back(
          fmt::format("{}: expected a JSON object of options, got {}", file.string(), describe_json(json)));
      file_is_unreadable_ = true;
      return;
    }
    for (const std::string& path : repeated) report(file.string(), path, "the key stands in the file twice");
    json.erase(std::string(schema_key));
    read_object(json, "", file.string());
  }

  void read_object(const OrderedJson& object, const std::string& prefix, const std::string& origin) {
    for (const auto& [key, value] : object.items()) {
      const std::string path = prefix + key;
      const Option* option = find_option(path);
      const bool is_written_dotted = key.find('.') != std::string::npos;
      if (option != nullptr && !is_written_dotted) {
        read_from_file(*option, value, origin, path);
      } else if (is_group(path) && value.is_object()) {
        read_object(value, path + ".", origin);
      } else if (is_group(path)) {
        report(origin, path, "expected an object of options, got " + describe_json(value));
      } else if (option != nullptr) {
        report(origin, path, "in a file the parts of this name are nested objects: {\"a\": {\"b\": ...}} for a.b");
      } else {
        report(origin, path, "unknown key" + suggestion_for(path));
      }
    }
  }

  void read_from_file(const Option& option, const OrderedJson& value, const std::string& origin,
                      const std::string& path) {
    if (given_.contains(option.name)) {
      report(origin, path, fmt::format("the file gives {} twice, under two of its names", option.name));
      return;
    }
    assign(option, value, origin, path);
  }

  void assign(const Option& option, const OrderedJson& value, const std::string& origin, const std::string& path) {
    given_[option.name] = origin;
    const bool assigned = option.value->assign(
        value, config_,
        [&](const std::string& place, const std::string& message) { report(origin, path + place, message); });
    if (!assigned) wrong_.insert(option.name);
  }

  static bool is_group(const std::string& path) {
    const auto begins_with_path = [&](const Option& option) { return option.name.starts_with(path + "."); };
    return std::any_of(option_table().begin(), option_table().end(), begins_with_path);
  }

  const ConfigSource& source_;
  TrainConfig config_;
  std::vector<std::string> problems_;
  std::map<std::string_view, std::string> given_;  ///< option name -> where its value was written last
  std::set<std::string_view> wrong_;               ///< options of which a value was refused
  bool file_is_unreadable_ = false;
};

}  // namespace

std::vector<std::string> required_for_training() {
  std::vector<std::string> names;
  for (const Option& option : option_table()) {
    if (option.required_for_training) names.emplace_back(option.name);
  }
  return names;
}

TrainConfig parse_config(const ConfigSource& source, const std::vector<std::string>& required) {
  ConfigReader reader(source);
  reader.read();
  reader.check_required(required);
  reader.check_rules();
  return reader.result();
}

}  // namespace skrull
