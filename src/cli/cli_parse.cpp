#include "cli_parse.h"

#include <algorithm>
#include <cstdio>

#include "skrull/config/choices.h"
#include "skrull/core/error.h"
#include "skrull/schedule/scheduler.h"

namespace skrull::cli {

void add_compute_dtype(CLI::App& app, DType& dtype) {
  std::vector<std::string> names;
  names.reserve(std::size(compute_dtypes));
  for (const Choice<DType>& choice : compute_dtypes) names.emplace_back(choice.name);
  app.add_option_function<std::string>(
         "--compute-dtype",
         [&dtype](const std::string& name) {
           for (const Choice<DType>& choice : compute_dtypes) {
             if (choice.name == name) dtype = choice.value;
           }
         },
         fmt::format("{}", fmt::join(names, " or ")))
      ->check(CLI::IsMember(names))
      ->default_str(std::string(name_of(dtype)));
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
