#include "commands.h"

#include <cstdio>

#include "skrull/core/error.h"
#include "skrull/core/text.h"

namespace skrull::cli {
namespace {

void print_usage(std::FILE* out) {
  std::fputs(
      "Skrull: a native trainer for long-context supervised fine-tuning.\n\n"
      "usage: skrull COMMAND [arguments]\n"
      "       mpirun -np N skrull train CONFIG.json [key=value ...] [--key value ...]\n\ncommands:\n",
      out);
  for (const Command& command : commands()) std::fprintf(out, "  %-10s %s\n", command.name, command.help);
  std::fputs(
      "\nskrull COMMAND --help explains one. Results go to standard output, everything else to standard error.\n", out);
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"train", "fine-tune a model on chat data", train},
      {"eval", "loss and perplexity of a model on a data set", evaluate},
      {"generate", "continue a prompt or answer a conversation", generate},
      {"inspect", "check a checkpoint and say what it holds", inspect},
      {"export", "a checkpoint to a plain Hugging Face folder", export_model},
      {"plan", "the schedule, memory and speed a cluster would have, without it", plan},
      {"profile", "measure this machine into a hardware profile that schedules are made by", profile},
      {"tokenize", "text to token ids, line by line", tokenize},
      {"render", "conversations to text, ids and labels, as training sees them", render},
      {"config", "the options: JSON Schema or Markdown reference", config},
      {"doctor", "what this machine has, what is missing, whether it computes right", doctor},
      {"bench", "measure this machine: a training step, the operations", bench},
  };
  return table;
}

int run(int argc, char** argv) {
  const Arguments all(argv + 1, argv + argc);
  if (all.empty()) {
    print_usage(stderr);
    return static_cast<int>(ExitCode::invalid_input);
  }
  const std::string& name = all.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(stdout);
    return static_cast<int>(ExitCode::done);
  }
  if (name == "--version" || name == "version") {
    std::puts("skrull " SKRULL_VERSION);
    return static_cast<int>(ExitCode::done);
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (name == command.name) return command.run({all.begin() + 1, all.end()});
    names.emplace_back(command.name);
  }
  const std::string near = nearest(name, names);
  throw_invalid_input("unknown command \"{}\"; {}skrull --help lists the commands", name,
                      near.empty() ? "" : fmt::format("did you mean \"{}\"? ", near));
}

}  // namespace skrull::cli
