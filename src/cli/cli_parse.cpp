#include "cli_parse.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "skrull/config/choices.h"
#include "skrull/core/error.h"
#include "skrull/schedule/scheduler.h"

namespace skrull::cli {

namespace {

template <class Value, std::size_t count>
void add_choice(CLI::App& app, const char* flag, const std::array<Choice<Value>, count>& choices, Value& value) {
  std::vector<std::string> names;
  names.reserve(count);
  for (const Choice<Value>& choice : choices) names.emplace_back(choice.name);
  app.add_option_function<std::string>(
         flag,
         [&value, &choices](const std::string& name) {
           for (const Choice<Value>& choice : choices) {
             if (choice.name == name) value = choice.value;
           }
         },
         fmt::format("{}", fmt::join(names, " or ")))
      ->check(CLI::IsMember(names))
      ->default_str(std::string(name_of(value)));
}

}  // namespace

void add_compute_dtype(CLI::App& app, DType& dtype) {
  add_choice(app, "--compute-dtype", compute_dtypes, dtype);
}

void add_device(CLI::App& app, DeviceChoice& device) {
  add_choice(app, "--device", choices_of<DeviceChoice>, device);
}

void add_attention(CLI::App& app, AttentionChoice& attention) {
  add_choice(app, "--attention-engine", choices_of<AttentionEngineChoice>, attention.engine);
  app.add_flag_callback(
      "--nondeterministic-attention", [&attention] { attention.deterministic = false; },
      "of a GPU: deterministic_attention=false");
}

std::vector<std::string> parse_policies(const std::string& list) {
  return list == "all" ? policy_names() : CLI::detail::split(list, ',');
}

bool parse(CLI::App& app, const Arguments& arguments) {
  Arguments reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them last first
  try {
    app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw_invalid_input("{}: {}; {} --help explains the arguments", app.get_name(), error.what(), app.get_name());
  }
}

}  // namespace skrull::cli
