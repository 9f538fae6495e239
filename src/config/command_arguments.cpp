#include <algorithm>

#include "option_table.h"
#include "skrull/config/config_parser.h"

namespace skrull {
namespace {

constexpr std::string_view dashes = "--";
constexpr std::string_view negation = "no_";

/// The key as the table spells it: people write --learning-rate too.
std::string normalised(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool looks_like_key(std::string_view text) {
  const auto belongs_in_key = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), belongs_in_key);
}

bool is_assignment(std::string_view argument) {
  const auto equals = argument.find('=');
  return equals != std::string_view::npos && looks_like_key(argument.substr(0, equals));
}

class ArgumentReader {
 public:
  explicit ArgumentReader(const std::vector<std::string>& arguments) : arguments_(arguments) {}

  ConfigSource read() {
    while (next_ < arguments_.size()) {
      const std::string_view argument = arguments_[next_++];
      if (argument.starts_with(dashes) && looks_like_key(argument.substr(dashes.size(), 1))) {
        read_dashed(argument.substr(dashes.size()));
      } else if (is_assignment(argument)) {
        read_assignment(argument);
      } else if (argument.empty() || argument.front() == '-') {
        problem("'{}': expected CONFIG.json, key=value or --key value", argument);
      } else if (source_.file) {
        problem("'{}': a second config file after '{}'; expected key=value or --key value", argument,
                source_.file->string());
      } else {
        source_.file = argument;
      }
    }
    return std::move(source_);
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> message, Args&&... args) {
    source_.problems.push_back(fmt::format(message, std::forward<Args>(args)...));
  }

  void add(std::string key, std::string_view value) {
    source_.overrides.push_back({std::move(key), std::string(value)});
  }

  void read_assignment(std::string_view assignment) {
    const auto equals = assignment.find('=');
    add(normalised(assignment.substr(0, equals)), assignment.substr(equals + 1));
  }

  /// `key=value`, `key` before its value, `switch` or `no_switch`: what follows the two dashes.
  void read_dashed(std::string_view text) {
    if (text.find('=') != std::string_view::npos) return read_assignment(text);
    const std::string key = normalised(text);
    const Option* option = find_option(key);
    if (option == nullptr && key.starts_with(negation)) {
      const std::string positive = key.substr(negation.size());
      if (const Option* negated = find_option(positive)) {
        if (negated->value->accepts_switch()) return add(positive, "false");
        return problem("{}{}: {} is no switch that can be turned off", dashes, text, positive);
      }
    }
    if (option != nullptr && option->value->accepts_switch()) {
      return add(key, next_is_value_of(*option) ? arguments_[next_++] : "true");
    }
    if (next_is_value(option == nullptr)) return add(key, arguments_[next_++]);
    if (option == nullptr) return problem("{}: unknown key{}", key, suggestion_for(key));
    problem("{}: a value is missing after {}{}", key, dashes, text);
  }

  /// The next argument can be a value. Behind an unknown key a config file is left alone: the key may be a misspelt
  /// switch, and taking its file away would bury that mistake under others.
  bool next_is_value(bool behind_unknown_key) const {
    if (next_ >= arguments_.size()) return false;
    const std::string_view next = arguments_[next_];
    if (next.starts_with(dashes)) return false;
    return !behind_unknown_key || (!is_assignment(next) && (source_.file || !next.ends_with(".json")));
  }

  /// Whether a switch takes the next argument: only when that is one of its values.
  bool next_is_value_of(const Option& option) const {
    TrainConfig scratch;
    return next_ < arguments_.size() &&
           option.value->assign(option.value->from_text(arguments_[next_]), scratch, [](const auto&, const auto&) {});
  }

  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;
  ConfigSource source_;
};

}  // namespace

ConfigSource read_arguments(const std::vector<std::string>& arguments) {
  return ArgumentReader(arguments).read();
}

}  // namespace skrull
