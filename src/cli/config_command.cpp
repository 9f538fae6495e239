// skrull config: what the option table says, for machines and for people.

#include <cstdio>

#include "commands.h"
#include "skrull/config/config_docs.h"
#include "skrull/core/error.h"

namespace skrull::cli {

int config(const Arguments& arguments) {
  const std::string choice = arguments.size() == 1 ? arguments.front() : "";
  if (choice == "--schema") {
    std::fputs(config_schema().c_str(), stdout);
  } else if (choice == "--markdown") {
    std::fputs(config_markdown().c_str(), stdout);
  } else if (choice == "--help" || choice == "-h") {
    std::puts(
        "usage: skrull config --schema | --markdown\n\n  --schema    JSON Schema of a training config\n"
        "  --markdown  the reference of all options");
  } else {
    throw_invalid_input("skrull config takes one of --schema, --markdown, --help");
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace skrull::cli
