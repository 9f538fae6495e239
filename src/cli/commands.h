#pragma once
// The sub-commands. Each reads its arguments (those after its name), does its work by calling the layers below, and
// returns the exit code.

#include <string>
#include <vector>

namespace skrull::cli {

using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* help;  ///< one line
  int (*run)(const Arguments& arguments);
};

/// All commands, in the order of the help text.
const std::vector<Command>& commands();

/// Entry point behind main(): picks the command, prints help or version.
int run(int argc, char** argv);

int train(const Arguments& arguments);
int evaluate(const Arguments& arguments);
int generate(const Arguments& arguments);
int plan(const Arguments& arguments);
int profile(const Arguments& arguments);
int inspect(const Arguments& arguments);
int export_model(const Arguments& arguments);
int tokenize(const Arguments& arguments);
int render(const Arguments& arguments);
int config(const Arguments& arguments);
int doctor(const Arguments& arguments);
int bench(const Arguments& arguments);
int bench_schedule(const Arguments& arguments);  ///< skrull bench schedule
int bench_policies(const Arguments& arguments);  ///< skrull bench policies, under mpirun
int bench_ring(const Arguments& arguments);      ///< skrull bench ring, under mpirun
int bench_zero(const Arguments& arguments);      ///< skrull bench zero, under mpirun

}  // namespace skrull::cli
