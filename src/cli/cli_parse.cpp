#include "cli_parse.h"

#include <algorithm>
#include <cstdio>

#include "skrull/core/error.h"

namespace skrull::cli {

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
