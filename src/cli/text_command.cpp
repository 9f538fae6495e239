// skrull tokenize and skrull render: what the data layer makes of text and conversations, line by line.

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli_parse.h"
#include "commands.h"
#include "skrull/core/error.h"
#include "skrull/data/text_commands.h"

namespace skrull::cli {

int tokenize(const Arguments& arguments) {
  CLI::App app("Turns lines {\"text\": ..} of standard input into lines {\"ids\": [..]}.", "skrull tokenize");
  std::string folder;
  bool plain = false;
  app.add_option("--tokenizer", folder, "folder with tokenizer.json, or vocab.json and merges.txt")->required();
  app.add_flag("--plain", plain, "text that spells a control token stays text");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  tokenize_lines(tokenizer, plain ? AddedTokens::plain : AddedTokens::recognize, std::cin, std::cout);
  return static_cast<int>(ExitCode::done);
}

int render(const Arguments& arguments) {
  CLI::App app(
      "Turns lines {\"messages\": [..], \"tools\": [..]} of standard input into lines {\"text\": .., \"ids\": [..], "
      "\"labels\": [..]},"
      "\nas training sees them: labels are -100 where a token is not trained.",
      "skrull render");
  std::string folder;
  RenderOptions options;
  app.add_option("--tokenizer", folder, "model or tokenizer folder")->required();
  app.add_flag("--add-generation-prompt", options.add_generation_prompt, "end with the header of an assistant turn");
  app.add_flag("--raw", options.raw, "as the model's Jinja template alone would render, without validation");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  render_lines(ChatTemplate::load(folder, tokenizer), options, std::cin, std::cout);
  return static_cast<int>(ExitCode::done);
}

}  // namespace skrull::cli
